// POST /score: for a prompt and candidates, the expected seconds until each one has it prefilled, and why.
import { type ScoreAnswer, type ScoreInput, type ScoreRow, scoreRequest } from "@svc/contract/index-score.ts";
import type { Match, QueryAnswer } from "@svc/contract/indexer.ts";
import { isMsgpack, parseJson, parseMsgpack, RAW_TYPE, type SplitProblem, splitRefusal } from "../http/bodies.ts";
import type { Request } from "../http/exchange.ts";
import { Refusal, refusalOf } from "../http/refusal.ts";
import type { NativeIndex, TokenOrHashList } from "../index/native.ts";
import type { Registry } from "../state/registry.ts";
import type { Subscription } from "../stream/subscription.ts";
import { FreshnessTable } from "./freshness.ts";
import { joinedSalt } from "./query-input.ts";

type Prompt = { readonly asked: ScoreInput; readonly list: TokenOrHashList };
type Candidate = { readonly instance: string; readonly waitingTokens: number };
/** One registered engine as the tenant's queries see it. */
type Registered = { readonly blockSize: number; readonly salt: string; readonly lora: string; readonly ranks: Subscription[] };

export class Scores {
  readonly #index: NativeIndex;
  readonly #registry: Registry;
  readonly #freshness: FreshnessTable;

  constructor(index: NativeIndex, registry: Registry) {
    this.#index = index;
    this.#registry = registry;
    this.#freshness = new FreshnessTable(registry.subscriptions);
  }

  answer(request: Request): ScoreAnswer {
    const prompt = request.type === RAW_TYPE ? readRawScore(request) : readScore(this.#index, request);
    const tenant = prompt.asked.tenant_id || "default";
    const engines = this.#engines(tenant, prompt.asked);
    const rowsOf = this.#matcher(tenant, prompt);
    const rows: Record<string, ScoreRow> = {};
    for (const candidate of candidatesOf(prompt.asked, engines)) {
      const engine = engines.get(candidate.instance);
      const row = engine === undefined ? unregistered(prompt, candidate) : this.#score(prompt, candidate, engine, rowsOf(engine));
      const isMatched = row.matched_tokens > 0 || row.uncertain_tokens > 0;
      if (isMatched || row.score === null || !prompt.asked.omit_unmatched) rows[candidate.instance] = row;
    }
    return { [tenant]: rows };
  }

  /** Engines of the tenant and model by instance; stores supply blocks and take no prompts. */
  #engines(tenant: string, { model, block_size }: ScoreInput): Map<string, Registered> {
    const found = new Map<string, Registered>();
    for (const subscription of this.#registry.subscriptions.values()) {
      const { instance_id, tenant_id, modelname, block_size: blockSize, additionalsalt: salt, lora_name: lora } = subscription.registration;
      if (subscription.kind !== "engine" || tenant_id !== tenant || modelname !== model) continue;
      if (block_size != null && blockSize !== block_size) continue;
      const known = found.get(instance_id);
      if (known === undefined) found.set(instance_id, { blockSize, salt, lora, ranks: [subscription] });
      else known.ranks.push(subscription);
    }
    return found;
  }

  /** Asks the index once for each block size and registered salt, however many candidates have them. */
  #matcher(tenant: string, { asked, list }: Prompt): (engine: Registered) => Record<string, Match> {
    const answers = new Map<string, Record<string, Match>>();
    return ({ blockSize, salt: registered }) => {
      const key = `${blockSize} ${registered}`;
      const known = answers.get(key);
      if (known !== undefined) return known;
      const lora = asked.lora_name ?? "";
      const query = {
        tenant,
        model: asked.model,
        lora: lora === "" ? "" : `n:${lora}`,
        salt: joinedSalt(registered, asked.cache_salt ?? ""),
        blockSize,
        instance: "",
      };
      const answer = JSON.parse(this.#index.answer(query, list, false, this.#freshness.now()).toString("utf8")) as QueryAnswer;
      const rows = answer[tenant] ?? {};
      answers.set(key, rows);
      return rows;
    };
  }

  #score({ asked, list }: Prompt, { instance, waitingTokens }: Candidate, { blockSize, ranks }: Registered, rows: Record<string, Match>): ScoreRow {
    const length = list instanceof Uint32Array ? list.length : list.length * blockSize;
    const state = this.#stateOf(ranks);
    const row = rows[instance];
    const connected = (rank: string) => row?.freshness?.[rank]?.connected !== false;
    // An engine computes a prompt's last token itself, whatever it has cached.
    const most = Math.max(0, Math.floor((length - 1) / blockSize) * blockSize);
    let best = { rank: 0, certain: 0, uncertain: 0, worth: -1 };
    for (const [rank, tokens] of Object.entries(row?.DP ?? {})) {
      if (!connected(rank)) continue;
      const certain = Math.min(tokens, most);
      const uncertain = Math.min(row?.uncertain?.DP[rank] ?? 0, most - certain);
      const worth = certain + asked.uncertain_share * uncertain;
      if (worth > best.worth) best = { rank: Number(rank), certain, uncertain, worth };
    }
    const loaded = Math.max(0, best.certain - (row?.GPU ?? 0));
    const left = length - best.certain - asked.uncertain_share * best.uncertain;
    const seconds = (left + waitingTokens) / asked.prefill_tokens_per_second + loaded / asked.load_tokens_per_second;
    return {
      score: state === "live" ? seconds : null,
      state,
      matched_tokens: best.certain,
      uncertain_tokens: best.uncertain,
      loaded_tokens: loaded,
      prompt_tokens: length,
      block_size: blockSize,
      dp_rank: best.rank,
      because: state === "live" ? reasonOf({ ...best, loaded, length, waitingTokens, knows: row !== undefined }) : whyNot(state, ranks),
    };
  }

  #stateOf(ranks: readonly Subscription[]): ScoreRow["state"] {
    if (ranks.some(({ connected }) => connected)) return "live";
    return ranks.every(({ counts }) => counts.isDead) ? "dead" : "disconnected";
  }
}

function candidatesOf({ candidates }: ScoreInput, engines: ReadonlyMap<string, Registered>): Candidate[] {
  if (candidates == null) return [...engines.keys()].map((instance) => ({ instance, waitingTokens: 0 }));
  return candidates.map((one) =>
    typeof one === "string" ? { instance: one, waitingTokens: 0 } : { instance: one.instance_id, waitingTokens: one.waiting_tokens ?? 0 },
  );
}

function unregistered({ asked, list }: Prompt, { waitingTokens }: Candidate): ScoreRow {
  const length = list instanceof Uint32Array ? list.length : list.length * (asked.block_size ?? 0);
  return {
    score: (length + waitingTokens) / asked.prefill_tokens_per_second,
    state: "unregistered",
    matched_tokens: 0,
    uncertain_tokens: 0,
    loaded_tokens: 0,
    prompt_tokens: length,
    block_size: asked.block_size ?? null,
    dp_rank: null,
    because: `no engine of this name is registered for the tenant, model ${asked.model}${asked.block_size == null ? "" : ` and block size ${asked.block_size}`}: all ${length} tokens count as prefill`,
  };
}

type Parts = { rank: number; certain: number; uncertain: number; loaded: number; length: number; waitingTokens: number; knows: boolean };

function reasonOf({ rank, certain, uncertain, loaded, length, waitingTokens, knows }: Parts): string {
  if (!knows) return "the engine is registered for another LoRA adapter or salt: nothing matches";
  const parts = [`rank ${rank} has ${certain} of ${length} tokens`];
  if (uncertain > 0) parts.push(`and perhaps ${uncertain} more, which lost events may have taken`);
  if (loaded > 0) parts.push(`${loaded} of them are loaded from outside the device`);
  if (waitingTokens > 0) parts.push(`${waitingTokens} tokens wait before it`);
  return parts.join(", ");
}

function whyNot(state: ScoreRow["state"], ranks: readonly Subscription[]): string {
  const endpoints = ranks.map(({ registration }) => registration.endpoint).join(", ");
  return state === "dead"
    ? `${endpoints} has not answered for longer than indexer.silence_seconds: the engine counts as dead`
    : `there is no connection to ${endpoints}: what the engine has now is not known`;
}

function readScore(index: NativeIndex, request: Request): Prompt {
  const msgpack = isMsgpack(request.type);
  const { rest, problem, token_ids, seq_hashes } = index.splitQuery(request.body, msgpack);
  if (problem !== undefined) throw splitRefusal(JSON.parse(problem) as SplitProblem);
  const others = (msgpack ? parseMsgpack : parseJson)(rest) as Record<string, unknown>;
  const asked = checked(others);
  if (token_ids !== undefined && seq_hashes !== undefined)
    throw new Refusal("unsupported", "seq_hashes: expected token_ids or seq_hashes, got both", { field: "seq_hashes" });
  const list = token_ids ?? seq_hashes;
  if (list === undefined) throw new Refusal("missing", "token_ids: is missing; send token_ids, or seq_hashes with block_size", { field: "token_ids" });
  if (list instanceof BigUint64Array && asked.block_size == null)
    throw new Refusal("missing", "block_size: is missing; hashes are those of one block size", { field: "block_size" });
  return { asked, list };
}

/** Tokens as little-endian u32 in the body, and everything else in the URL; `candidates` are separated by commas. */
function readRawScore({ body, search }: Request): Prompt {
  if (body.length % 4 !== 0) throw new Refusal("invalid_value", `the body has ${body.length} bytes, which is not a multiple of 4`);
  const members: Record<string, unknown> = {};
  for (const [name, text] of new URLSearchParams(search)) {
    if (name in members) throw new Refusal("invalid_value", `${name}: expected once, got more`, { field: name });
    members[name] =
      name === "candidates"
        ? text.split(",").filter((one) => one !== "")
        : numbers.has(name)
          ? Number(text)
          : name === "omit_unmatched"
            ? (booleans[text] ?? text)
            : text;
  }
  const aligned = body.byteOffset % 4 === 0 ? body : Buffer.from(new Uint8Array(body).buffer);
  return { asked: checked(members), list: new Uint32Array(aligned.buffer as ArrayBuffer, aligned.byteOffset, body.length / 4) };
}

const numbers: ReadonlySet<string> = new Set(["block_size", "prefill_tokens_per_second", "load_tokens_per_second", "uncertain_share"]);

const booleans: Readonly<Record<string, boolean>> = { true: true, false: false };

function checked(members: Record<string, unknown>): ScoreInput {
  const parsed = scoreRequest.safeParse(members);
  if (!parsed.success) throw refusalOf(parsed.error, members);
  return parsed.data;
}
