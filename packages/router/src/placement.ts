// Brings together what is known of a prompt and of each engine, and chooses where the prompt goes.
import type { ScoreRow } from "@svc/contract/index-score.ts";
import type { Engine, Role } from "./engine.ts";
import type { IndexRows, IndexScores } from "./index-scores.ts";
import { Known } from "./known.ts";
import { type Cost, choose, costOf, type Option, type PlaceRules } from "./place.ts";
import type { Prompt, PromptKind } from "./prompt.ts";
import type { RecentPrompt } from "./recent-prompts.ts";
import { Refusal } from "./refusals.ts";
import { Serving } from "./serving.ts";
import type { Tokens } from "./tokens.ts";

const MAX_SESSIONS = 65_536;
/** A prompt whose tokens are not known is taken to have one per four bytes of its request. */
const BYTES_PER_TOKEN = 4;
/** The assumed length of a waiting request that came past this router, until the mean of the router's own requests is known. In tokens. */
const FIRST_MEAN_TOKENS = 512;
const MEAN_WEIGHT = 0.05;
/** The block size with which prompts are compared until the indexer names the engine's own. In tokens. */
const USUAL_BLOCK_SIZE = 16;

export type Sought = {
  readonly prompt: Prompt;
  readonly tokens: Tokens;
  readonly bytes: number;
  readonly rows: IndexRows;
  /** The only engine that may take it, by the request's own words or by what it keeps. */
  readonly pinned: Engine | undefined;
};

export type Considered = { readonly engine: string; readonly seconds?: number; readonly expectedCachedTokens?: number; readonly because: string };

/** One request on one engine, counted there until `end`. */
export class Placed {
  readonly engine: Engine;
  /** The engine that computes the prompt for it, where the two are a pair. */
  prefill: Placed | undefined;
  /** Every engine with its cost, or why it was left out. Empty unless `place` was called with `explains`. */
  readonly considered: readonly Considered[];
  readonly #expectedCached: number | undefined;
  readonly #left: number;
  readonly #recent: RecentPrompt | undefined;
  #state: "waiting" | "answering" | "over" = "waiting";

  constructor(engine: Engine, expectedCached: number | undefined, left: number, recent: RecentPrompt | undefined, considered: readonly Considered[]) {
    this.engine = engine;
    this.#expectedCached = expectedCached;
    this.considered = considered;
    this.#left = left;
    this.#recent = recent;
    engine.inFlight++;
    engine.waiting++;
    engine.waitingTokens += left;
  }

  /** On the engine that computes the prompt. Undefined where the prompt's tokens are not known. */
  get expectedCached(): number | undefined {
    return this.prefill === undefined ? this.#expectedCached : this.prefill.expectedCached;
  }

  /** The first answer byte came: the prompt has been computed. */
  answered(): void {
    if (this.#state !== "waiting") return;
    this.#state = "answering";
    this.#prefilled();
    if (this.#recent !== undefined) this.#recent.computed = true;
  }

  end(): void {
    this.prefill?.end();
    if (this.#state === "over") return;
    if (this.#state === "waiting") {
      this.#prefilled();
      if (this.#recent !== undefined) this.engine.recent.remove(this.#recent);
    }
    this.#state = "over";
    this.engine.inFlight--;
  }

  #prefilled(): void {
    this.engine.waiting--;
    this.engine.waitingTokens = Math.max(0, this.engine.waitingTokens - this.#left);
  }
}

export class Placement {
  readonly #engines: readonly Engine[];
  readonly #index: IndexScores;
  readonly #rules: PlaceRules;
  readonly #sessions = new Known<string>(MAX_SESSIONS);
  readonly #serving: Serving;
  #meanTokens = FIRST_MEAN_TOKENS;

  constructor(engines: readonly Engine[], index: IndexScores, rules: PlaceRules) {
    this.#engines = engines;
    this.#serving = new Serving(engines);
    this.#index = index;
    this.#rules = rules;
  }

  /** @throws Refusal MODEL_NOT_FOUND where every engine has listed its models, and none has this one */
  servers(model: string | undefined): readonly Engine[] {
    if (model === undefined) return this.#engines;
    const serving = this.#serving.of(model).engines;
    if (serving.length === 0)
      throw new Refusal("model_not_found", `no engine serves the model ${JSON.stringify(model.slice(0, 200))}; GET /v1/models lists those that are there`);
    return serving;
  }

  /** Rows of the indexer for all engines that serve the model; also notes which of them it calls dead. */
  async rowsFor(prompt: Prompt, tokens: Uint32Array, patient = false): Promise<IndexRows> {
    if (prompt.model === undefined) return {};
    const answers = await Promise.all(
      this.#serving.of(prompt.model).groups.map(async ({ model, lora, engines, names }) => {
        const rows = await this.#index.ask(tokens, { model, lora, salt: prompt.cacheSalt, candidates: names }, patient);
        if (rows === undefined) return {};
        for (const engine of engines) {
          const row = rows[engine.name];
          if (row !== undefined || patient) engine.indexState = row?.state ?? "unregistered";
          engine.blockSize = row?.block_size ?? engine.blockSize;
        }
        return rows;
      }),
    );
    return answers.length === 1 ? (answers[0] as IndexRows) : (Object.assign({}, ...answers) as IndexRows);
  }

  /**
   * Returns the best engine with room, counted as busy from now on; undefined if the request should wait. `explains` also lists all others.
   * @throws Refusal where no engine can take it, however long it waits
   */
  place(sought: Sought, except: ReadonlySet<Engine>, explains = false): Placed | undefined {
    if (!this.#pairs(sought, except)) return this.#placeOn(sought, except, explains, alone(sought)) ?? this.#orWait(sought, except);
    const decode = this.#placeOn({ ...sought, tokens: onlyDecodes, bytes: 0 }, except, explains, ["decode"]);
    if (decode === undefined) return undefined;
    const prefill = this.#placeOn(sought, except, explains, ["prefill"]);
    if (prefill === undefined) {
      decode.end();
      return undefined;
    }
    decode.prefill = prefill;
    return decode;
  }

  /** False if no engine is left that could take it, so that a second attempt would only hide why the first one failed. */
  couldPlace(sought: Sought, except: ReadonlySet<Engine>): boolean {
    if (this.#pairs(sought, except)) return true;
    const roles = alone(sought);
    return this.servers(sought.prompt.model).some((engine) => !except.has(engine) && engine.unfit === undefined && roles.includes(engine.role));
  }

  /** True if an engine of each role can take the prompt, so that two of them do. */
  #pairs({ prompt, pinned }: Sought, except: ReadonlySet<Engine>): boolean {
    if (pinned !== undefined || !pairable.has(prompt.kind)) return false;
    const fit = this.servers(prompt.model).filter((engine) => !except.has(engine) && engine.unfit === undefined);
    return fit.some(({ role }) => role === "prefill") && fit.some(({ role }) => role === "decode");
  }

  #placeOn(sought: Sought, except: ReadonlySet<Engine>, explains: boolean, roles: readonly Role[]): Placed | undefined {
    const { best, considered } = this.#weigh(sought, except, explains, roles);
    if (best === undefined) return undefined;
    const { engine, option } = best;
    const { tokens, bytes, prompt } = sought;
    const left = tokens.tokens === undefined ? Math.ceil(bytes / BYTES_PER_TOKEN) : tokens.tokens.length - option.certainTokens;
    if (tokens.tokens !== undefined) this.#meanTokens += MEAN_WEIGHT * (left - this.#meanTokens);
    const recent =
      tokens.tokens === undefined
        ? undefined
        : engine.recent.add(tokens.tokens, this.#spaces(prompt)(engine), performance.now(), sought.rows[engine.name]?.matched_tokens);
    if (prompt.session !== undefined) this.#sessions.set(prompt.session, engine.name);
    return new Placed(engine, tokens.tokens === undefined ? undefined : option.certainTokens, left, recent, considered);
  }

  /** Says where `place` would send it, and sends nothing. */
  explain(sought: Sought): { engine: string | null; prefill?: string | null; considered: readonly Considered[] } {
    if (!this.#pairs(sought, none)) {
      const { best, considered } = this.#weigh(sought, none, true, alone(sought));
      return { engine: best?.engine.name ?? null, considered };
    }
    const prefill = this.#weigh(sought, none, true, ["prefill"]);
    const decode = this.#weigh({ ...sought, tokens: onlyDecodes, bytes: 0 }, none, true, ["decode"]);
    return { engine: decode.best?.engine.name ?? null, prefill: prefill.best?.engine.name ?? null, considered: [...prefill.considered, ...decode.considered] };
  }

  #weigh(sought: Sought, except: ReadonlySet<Engine>, explains: boolean, roles: readonly Role[]): { best: Weighed | undefined; considered: Considered[] } {
    const considered: Considered[] = [];
    const spaceOf = this.#spaces(sought.prompt);
    const weighed: Weighed[] = [];
    const costs: Cost[] = [];
    for (const engine of sought.pinned === undefined ? this.servers(sought.prompt.model) : [sought.pinned]) {
      if (sought.pinned === undefined && !roles.includes(engine.role)) continue;
      const unfit = except.has(engine) ? "it failed this request" : (engine.unfit ?? (engine.isFull ? "it has the most requests that it may have" : undefined));
      if (unfit !== undefined) {
        if (explains) considered.push({ engine: engine.name, because: `not chosen: ${unfit}` });
        continue;
      }
      const option = this.#optionOf(engine, spaceOf(engine), sought);
      const cost = costOf(option, this.#rules);
      weighed.push({ engine, option });
      costs.push(cost);
      if (!explains) continue;
      considered.push({
        engine: engine.name,
        seconds: round(cost.seconds),
        ...(option.promptTokens === undefined ? {} : { expectedCachedTokens: option.certainTokens }),
        because: `${round(cost.prefillSeconds)} s of prefill, ${round(cost.waitingSeconds)} s of waiting work, ${round(cost.runningSeconds)} s for ${option.running} running requests`,
      });
    }
    const { session } = sought.prompt;
    const best = choose(costs, this.#rules, session === undefined ? undefined : this.#sessions.get(session), Math.random);
    return { best: best && weighed[costs.indexOf(best)], considered };
  }

  #optionOf(engine: Engine, space: string, { tokens, rows }: Sought): Option {
    const { load } = engine;
    const others = load === undefined ? 0 : Math.max(0, load.running + load.waiting - load.ownInFlight);
    const othersWaiting = load === undefined ? 0 : Math.min(others, load.waiting);
    const cached = tokens.tokens === undefined ? nothing : cachedOn(engine, space, tokens.tokens, rows[engine.name]);
    return {
      name: engine.name,
      promptTokens: tokens.tokens?.length,
      certainTokens: cached.certain,
      uncertainTokens: cached.uncertain,
      waitingTokens: engine.waitingTokens + othersWaiting * this.#meanTokens,
      running: engine.inFlight - engine.waiting + others - othersWaiting,
      kvUsage: load?.kvUsage ?? 0,
      prefillTokensPerSecond: engine.prefillTokensPerSecond,
    };
  }

  /** Returns by engine the model, adapter and salt under which its blocks can match the prompt. */
  #spaces({ model, cacheSalt }: Prompt): (engine: Engine) => string {
    const spaces = model === undefined ? undefined : this.#serving.of(model).spaces;
    const salt = cacheSalt === "" ? "" : JSON.stringify(cacheSalt);
    return (engine) => (spaces?.get(engine) ?? "") + salt;
  }

  /** Waiting helps where an engine is only full, or its connection to the indexer may come back. */
  #orWait({ prompt, pinned }: Sought, except: ReadonlySet<Engine>): undefined {
    if (pinned !== undefined) {
      if (pinned.unfit === undefined) return undefined;
      throw new Refusal("engine_unavailable", `the engine ${pinned.name}, which this request needs, takes no requests: ${pinned.unfit}`, 1);
    }
    const rest = this.servers(prompt.model).filter((engine) => !except.has(engine));
    const roles = alone({ prompt } as Sought);
    const fitting = rest.filter((engine) => roles.includes(engine.role));
    if (fitting.some((engine) => engine.unfit === undefined || (engine.circuit.state === "closed" && !engine.draining && engine.indexState === "disconnected")))
      return undefined;
    const why = rest.map((engine) => `${engine.name}: ${engine.unfit ?? `its role is ${engine.role}, and no partner can be chosen`}`).join("; ");
    throw new Refusal("no_engine", `no engine can take the request: ${why === "" ? "all have failed it" : why}`, 1);
  }
}

const none: ReadonlySet<Engine> = new Set();
/** The kinds of request for which engines accept the parameters of a prefill/decode pair. */
const pairable: ReadonlySet<PromptKind> = new Set(["chat", "completion"]);
/** A decode engine receives the KV cache from its prefill partner, so its own cached prefix saves little and is not looked up. */
const onlyDecodes: Tokens = { tokens: undefined, reason: "kind", detail: "another engine computes the prompt" };
/** Requests that cannot be split into a pair go to engines that compute the prompt and answer themselves; a prefill engine never answers a client. */
const alone = ({ prompt }: Sought): readonly Role[] => (pairable.has(prompt.kind) ? ["both"] : ["both", "decode"]);

type Weighed = { readonly engine: Engine; readonly option: Option };
const nothing = { certain: 0, uncertain: 0 };

function cachedOn(engine: Engine, space: string, tokens: Uint32Array, row: ScoreRow | undefined): { certain: number; uncertain: number } {
  const blockSize = engine.blockSize ?? USUAL_BLOCK_SIZE;
  const recent = engine.recent.match(tokens, space, blockSize, performance.now(), row?.matched_tokens);
  // An engine computes a prompt's last token itself, whatever it has cached.
  const most = Math.max(0, Math.floor((tokens.length - 1) / blockSize) * blockSize);
  const certain = Math.min(most, Math.max(row?.matched_tokens ?? 0, recent.certain));
  const all = Math.min(most, Math.max((row?.matched_tokens ?? 0) + (row?.uncertain_tokens ?? 0), recent.certain + recent.uncertain));
  return { certain, uncertain: Math.max(0, all - certain) };
}

const round = (seconds: number) => Math.round(seconds * 1e6) / 1e6;
