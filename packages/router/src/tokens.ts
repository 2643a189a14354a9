// A prompt's token ids as its engine computes them: from the request, from the cache, or from the engine's own renderer.
import { Agent } from "node:http";
import { fail } from "@svc/contract/failures.ts";
import { type Answer, call } from "./call.ts";
import type { Engine } from "./engine.ts";
import type { LocalTokenizers } from "./local-tokenizers.ts";
import { givenTokens, isMultimodal, listOf, type Prompt, tokensIn } from "./prompt.ts";
import { cacheKeys, TokenCache } from "./token-cache.ts";

/** Why a prompt is placed by load alone. */
export type MissingReason = "kind" | "multimodal" | "no_engine" | "unsupported" | "failed";
export type Tokens =
  | { readonly tokens: Uint32Array; readonly from: "request" | "cache" | "local" | "engine" | "prefix" }
  | { readonly tokens: undefined; readonly reason: MissingReason; readonly detail: string };

type Way = { readonly path: string; readonly body: string };
type Source = {
  readonly name: string;
  readonly agent: Agent;
  readonly base: string;
  readonly lacks: Set<string>;
  readonly headers: Readonly<Record<string, string>>;
};

/** Members of a chat request that change its rendering, for /tokenize, which takes no others. */
const rendered = ["tools", "chat_template", "chat_template_kwargs", "add_generation_prompt", "continue_final_message", "add_special_tokens", "documents"];
const CANNOT = [404, 405, 501];
/** vLLM answers with this status if its render paths are switched off. */
const SWITCHED_OFF = 403;

export type TokenizerOptions = { readonly timeoutMs: number; readonly cacheBytes: number; readonly renderer: string; readonly local: LocalTokenizers };

export class Tokenizer {
  readonly cache: TokenCache;
  readonly #options: TokenizerOptions;
  readonly #pending = new Map<string, Promise<Tokens>>();
  readonly #renderer: Source | undefined;

  constructor(options: TokenizerOptions) {
    this.#options = options;
    this.cache = new TokenCache(options.cacheBytes);
    if (options.renderer !== "")
      this.#renderer = { name: "the renderer", agent: new Agent({ keepAlive: true }), base: options.renderer, lacks: new Set(), headers: {} };
  }

  /** `engines` returns those that serve the model and answer, the best one to ask first. @throws Refusal for a body that is not valid */
  tokensOf(prompt: Prompt, path: string, engines: () => readonly Engine[], headers: () => Readonly<Record<string, string>>): Tokens | Promise<Tokens> {
    const given = givenTokens(prompt);
    if (given !== undefined) return { tokens: given, from: "request" };
    if (prompt.kind === "embeddings" || prompt.kind === "other") return missing("kind", "requests of this kind have no prefix to look for");
    try {
      const key = prompt.scan?.key(path);
      const known = key === undefined ? undefined : this.cache.get(key);
      if (known !== undefined) return { tokens: known, from: "cache" };
      if (isMultimodal(prompt)) return missing("multimodal", "the prompt has parts that are not text");
      const chain = key === undefined ? cacheKeys(path, prompt.body, listOf(prompt.kind)).chain : undefined;
      const whole = key ?? chain?.at(-1);
      if (whole === undefined) return missing("failed", `${listOf(prompt.kind)}: expected at least one entry`);
      const kept = key === undefined ? this.cache.get(whole) : undefined;
      if (kept !== undefined) return { tokens: kept, from: "cache" };
      return this.#make(prompt, path, engines(), headers(), whole, () => chain?.slice(0, -1).toReversed() ?? prompt.scan?.shorterKeys(path) ?? []);
    } catch (error) {
      return tooDeep(error);
    }
  }

  async #make(
    prompt: Prompt,
    path: string,
    engines: readonly Engine[],
    headers: Readonly<Record<string, string>>,
    key: string,
    shorterKeys: () => readonly string[],
  ): Promise<Tokens> {
    const [engine] = engines;
    const base = baseOf(engine, prompt.model ?? "");
    try {
      const local = this.#options.local.tokensOf(prompt, base);
      if (local !== undefined) {
        this.cache.set(key, local);
        return { tokens: local, from: "local" };
      }
      if (engine !== undefined && this.#options.local.isUnchecked(base)) void this.#checkLocal(base, engine);
      let pending = this.#pending.get(key);
      if (pending === undefined) {
        pending = this.#render(prompt, path, engines, headers).finally(() => this.#pending.delete(key));
        this.#pending.set(key, pending);
      }
      const found = await pending;
      if (found.tokens !== undefined) {
        this.cache.set(key, found.tokens);
        return found;
      }
      // The beginning of the conversation tells most of what may be cached.
      for (const shorter of shorterKeys()) {
        const tokens = this.cache.get(shorter);
        if (tokens !== undefined) return { tokens, from: "prefix" };
      }
      return found;
    } catch (error) {
      return tooDeep(error);
    }
  }

  /** Compares the tokenizers of this process with each engine that answers. @throws SETTING_INVALID where they differ */
  async checkAll(engines: readonly Engine[]): Promise<void> {
    for (const model of this.#options.local.models)
      for (const engine of engines.filter((one) => one.unfit === undefined && one.serves(model) !== undefined)) {
        const difference = await this.#checkLocal(model, engine);
        if (difference !== undefined) fail("SETTING_INVALID", `router.tokenizers: ${difference}`);
      }
  }

  async #checkLocal(model: string, engine: Engine): Promise<string | undefined> {
    return this.#options.local.check(model, engine.name, async (prompt, path) => (await this.#render(prompt, path, [engine], {})).tokens);
  }

  async #render(prompt: Prompt, path: string, engines: readonly Engine[], headers: Readonly<Record<string, string>>): Promise<Tokens> {
    const [engine] = engines;
    const own = engine?.record.api_key;
    const sources: Source[] = this.#renderer === undefined ? [] : [this.#renderer];
    if (engine !== undefined)
      sources.push({
        name: engine.name,
        agent: engine.agent,
        base: engine.url,
        lacks: engine.lacks,
        headers: own === undefined ? headers : { authorization: `Bearer ${own}` },
      });
    if (sources.length === 0) return missing("no_engine", "no engine answers that could tokenize it");
    let last: Tokens = missing("unsupported", "neither a render path nor /tokenize is there");
    for (const source of sources) {
      for (const way of waysOf(prompt, path)) {
        if (source.lacks.has(way.path)) continue;
        const answer = await this.#ask(source, way);
        if (answer instanceof Error) {
          last = missing("failed", `${source.name}: ${way.path}: ${answer.message}`);
          break;
        }
        const tokens = answer.status === 200 ? readTokens(answer.text) : undefined;
        if (tokens !== undefined) return { tokens, from: "engine" };
        const isOff = answer.status === SWITCHED_OFF && way.path.endsWith("/render");
        if (CANNOT.includes(answer.status) || isOff) source.lacks.add(way.path);
        else last = missing("failed", `${source.name}: ${way.path} answered ${answer.status}${answer.status === 200 ? " without token ids" : ""}`);
      }
    }
    return last;
  }

  async #ask({ agent, base, headers }: Source, { path, body }: Way): Promise<Answer | Error> {
    try {
      return await call({ agent, base, path, body, headers: { "content-type": "application/json", ...headers }, timeoutMs: this.#options.timeoutMs });
    } catch (error) {
      return error as Error;
    }
  }

  close(): void {
    this.#renderer?.agent.destroy();
  }
}

/** A LoRA adapter has its base's tokenizer. */
function baseOf(engine: Engine | undefined, model: string): string {
  const parent = engine?.serves(model)?.parent;
  return typeof parent === "string" && parent !== "" ? parent : model;
}

/** The ways to a prompt's tokens, the most exact one first: a render path takes the request itself. */
function waysOf({ kind, body, model }: Prompt, path: string): Way[] {
  const render: Way = { path: `${path}/render`, body: JSON.stringify({ ...body, stream: false, stream_options: undefined }) };
  if (kind === "chat") {
    const members = Object.fromEntries(rendered.filter((name) => body[name] !== undefined).map((name) => [name, body[name]]));
    const chat = JSON.stringify({ model, messages: body["messages"], add_generation_prompt: true, ...members });
    return [render, { path: "/tokenize", body: chat }, { path: "/v1/tokenize", body: chat }];
  }
  if (kind !== "completion") return [render];
  const { prompt } = body;
  const first: unknown = Array.isArray(prompt) ? prompt[0] : prompt;
  if (typeof first !== "string") return [];
  const special = body["add_special_tokens"];
  return [{ path: "/tokenize", body: JSON.stringify({ model, prompt: first, ...(special === undefined ? {} : { add_special_tokens: special }) }) }];
}

/** vLLM's and SGLang's `tokens`, or `token_ids` of a render path, whose answer may be a list with one entry per prompt. */
export function readTokens(text: string): Uint32Array | undefined {
  let answer: unknown;
  try {
    answer = JSON.parse(text);
  } catch {
    return undefined;
  }
  const one = (Array.isArray(answer) ? answer[0] : answer) as { tokens?: unknown; token_ids?: unknown } | null | undefined;
  let list = one?.token_ids ?? one?.tokens;
  if (Array.isArray(list) && Array.isArray(list[0])) list = list[0];
  return tokensIn(list);
}

function missing(reason: MissingReason, detail: string): Tokens {
  return { tokens: undefined, reason, detail };
}

/** Lists in lists by the thousand can be parsed, and not written again. */
function tooDeep(error: unknown): Tokens {
  if (error instanceof RangeError) return missing("failed", `the prompt is nested too deeply: ${error.message}`);
  throw error;
}
