// Brings together what is known of a prompt and of each engine, and chooses where the prompt goes.
import type { ScoreRow } from "@svc/contract/index-score.ts";
import type { Engine, Role } from "./engine.ts";
import type { IndexRows, IndexScores } from "./index-scores.ts";
import { Known } from "./known.ts";
import { chooseAt, costOf, type MutableOption, type Option, type PlaceRules, secondsOf } from "./place.ts";
import { type Considered, Placed } from "./placed.ts";
import type { Prompt, PromptKind } from "./prompt.ts";
import { startOfPrompt } from "./recent-prompts.ts";
import { Refusal } from "./refusals.ts";
import { type Group, Serving } from "./serving.ts";
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

export class Placement {
  readonly #engines: readonly Engine[];
  readonly #index: IndexScores;
  readonly #rules: PlaceRules;
  readonly #sessions = new Known<string>(MAX_SESSIONS);
  readonly #serving: Serving;
  #meanTokens = FIRST_MEAN_TOKENS;
  /** The engines of the last choice and their costs; these lists are filled again for each request. */
  readonly #fit: Engine[] = [];
  readonly #seconds: number[] = [];
  readonly #scratch: MutableOption = {
    ...{ name: "", promptTokens: undefined, certainTokens: 0, uncertainTokens: 0 },
    ...{ waitingTokens: 0, running: 0, kvUsage: 0, prefillTokensPerSecond: 1 },
  };

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
  rowsFor(prompt: Prompt, tokens: Uint32Array, patient = false): IndexRows | Promise<IndexRows> {
    if (prompt.model === undefined || this.#index.isOff) return noRows;
    const { groups } = this.#serving.of(prompt.model);
    const [only] = groups;
    if (groups.length === 1 && only !== undefined) return this.#rowsOf(only, prompt, tokens, patient);
    return Promise.all(groups.map((group) => this.#rowsOf(group, prompt, tokens, patient))).then((answers) => Object.assign({}, ...answers) as IndexRows);
  }

  async #rowsOf({ model, lora, engines, names }: Group, { cacheSalt }: Prompt, tokens: Uint32Array, patient: boolean): Promise<IndexRows> {
    const rows = await this.#index.ask(tokens, { model, lora, salt: cacheSalt, candidates: names }, patient);
    if (rows === undefined) return noRows;
    if (patient)
      for (const engine of engines) {
        const row = rows[engine.name];
        engine.indexState = row?.state ?? "unregistered";
        engine.blockSize = row?.block_size ?? engine.blockSize;
      }
    else
      for (const name in rows) {
        const engine = engines[names.indexOf(name)];
        if (engine === undefined) continue;
        engine.indexState = rows[name]?.state ?? engine.indexState;
        engine.blockSize = rows[name]?.block_size ?? engine.blockSize;
      }
    return rows;
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
    if (prompt.model !== undefined && !this.#serving.of(prompt.model).hasPairs) return false;
    const fit = this.servers(prompt.model).filter((engine) => !except.has(engine) && engine.unfit === undefined);
    return fit.some(({ role }) => role === "prefill") && fit.some(({ role }) => role === "decode");
  }

  #placeOn(sought: Sought, except: ReadonlySet<Engine>, explains: boolean, roles: readonly Role[]): Placed | undefined {
    const { best, considered } = this.#weigh(sought, except, explains, roles);
    if (best === undefined) return undefined;
    const { engine, certainTokens } = best;
    const { tokens, bytes, prompt } = sought;
    const left = tokens.tokens === undefined ? Math.ceil(bytes / BYTES_PER_TOKEN) : tokens.tokens.length - certainTokens;
    if (tokens.tokens !== undefined) this.#meanTokens += MEAN_WEIGHT * (left - this.#meanTokens);
    const recent =
      tokens.tokens === undefined
        ? undefined
        : engine.recent.add(tokens.tokens, this.#spaces(prompt)(engine), performance.now(), sought.rows[engine.name]?.matched_tokens);
    if (prompt.session !== undefined) this.#sessions.set(prompt.session, engine.name);
    return new Placed(engine, tokens.tokens === undefined ? undefined : certainTokens, left, recent, considered);
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
    const { pinned, prompt, tokens } = sought;
    const spaceOf = this.#spaces(prompt);
    const start = tokens.tokens === undefined ? 0 : startOfPrompt(tokens.tokens);
    const option = this.#scratch;
    const fit = this.#fit;
    const seconds = this.#seconds;
    let count = 0;
    for (const engine of pinned === undefined ? this.servers(prompt.model) : [pinned]) {
      if (pinned === undefined && !roles.includes(engine.role)) continue;
      const unfit = except.has(engine) ? "it failed this request" : (engine.unfit ?? (engine.isFull ? "it has the most requests that it may have" : undefined));
      if (unfit !== undefined) {
        if (explains) considered.push({ engine: engine.name, because: `not chosen: ${unfit}` });
        continue;
      }
      this.#fill(option, engine, spaceOf, sought, start);
      seconds[count] = secondsOf(option, this.#rules);
      fit[count++] = engine;
      if (explains) considered.push(explained(option, this.#rules));
    }
    const last = prompt.session === undefined ? undefined : this.#sessions.get(prompt.session);
    const isSessions = last === undefined ? never : (at: number) => fit[at]?.name === last;
    const engine = fit[chooseAt(seconds, count, this.#rules, isSessions, Math.random)];
    if (engine === undefined) return { best: undefined, considered };
    this.#fill(option, engine, spaceOf, sought, start);
    return { best: { engine, certainTokens: option.certainTokens }, considered };
  }

  #fill(option: MutableOption, engine: Engine, spaceOf: (engine: Engine) => string, { tokens, rows }: Sought, start: number): void {
    const { load } = engine;
    const others = load === undefined ? 0 : Math.max(0, load.running + load.waiting - load.ownInFlight);
    const othersWaiting = load === undefined ? 0 : Math.min(others, load.waiting);
    const row = rows[engine.name];
    const cached =
      tokens.tokens === undefined || (row === undefined && !engine.recent.mayMatch(start)) ? nothing : cachedOn(engine, spaceOf(engine), tokens.tokens, row);
    option.name = engine.name;
    option.promptTokens = tokens.tokens?.length;
    option.certainTokens = cached.certain;
    option.uncertainTokens = cached.uncertain;
    option.waitingTokens = engine.waitingTokens + othersWaiting * this.#meanTokens;
    option.running = engine.inFlight - engine.waiting + others - othersWaiting;
    option.kvUsage = load?.kvUsage ?? 0;
    option.prefillTokensPerSecond = engine.prefillTokensPerSecond;
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

type Weighed = { readonly engine: Engine; readonly certainTokens: number };
const noRows: IndexRows = {};
const never = () => false;
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

function explained(option: Option, rules: PlaceRules): Considered {
  const { name, seconds, prefillSeconds, waitingSeconds, runningSeconds } = costOf(option, rules);
  return {
    engine: name,
    seconds: round(seconds),
    ...(option.promptTokens === undefined ? {} : { expectedCachedTokens: option.certainTokens }),
    because: `${round(prefillSeconds)} s of prefill, ${round(waitingSeconds)} s of waiting work, ${round(runningSeconds)} s for ${option.running} running requests`,
  };
}
