// Finds out what a request needs before it can be placed: its model, its tokens, what the indexer says of them, and who must take it.
import { engineNamed } from "./admin.ts";
import type { RequestHeaders } from "./client/request.ts";
import type { Engine } from "./engine.ts";
import { Known as KnownMap } from "./known.ts";
import type { Placement, Sought } from "./placement.ts";
import { type Prompt, type PromptKind, promptPaths, readPrompt, sessionOf } from "./prompt.ts";
import { Refusal } from "./refusals.ts";
import type { RouterMetrics } from "./router-metrics.ts";
import type { Tokenizer, Tokens } from "./tokens.ts";

/** Responses whose engine is remembered. */
const MAX_RESPONSES = 65_536;

export type Head = { readonly method?: string | undefined; readonly headers: RequestHeaders };
export type SeekerOptions = {
  readonly engines: readonly Engine[];
  readonly placement: Placement;
  readonly tokenizer: Tokenizer;
  readonly metrics: RouterMetrics;
};

type Known = { readonly kind: PromptKind; readonly prompt: Prompt; readonly bytes: number; readonly pinned: Engine | undefined };

export class Seeker {
  readonly #options: SeekerOptions;
  readonly #responses = new KnownMap<Engine>(MAX_RESPONSES);

  constructor(options: SeekerOptions) {
    this.#options = options;
  }

  /** Requests that continue or name the response go to the engine. */
  keeps(responseID: string, engine: Engine): void {
    this.#responses.set(responseID, engine);
  }

  /** Returns at once if nobody has to be asked. @throws Refusal where no engine could take it */
  seek(request: Head, path: string, body: Buffer): Sought | Promise<Sought> {
    const { engines, placement, tokenizer } = this.#options;
    const kind: PromptKind = request.method === "POST" ? (promptPaths[path] ?? "other") : "other";
    const prompt = kind === "other" ? otherPrompt(request, body) : readPrompt(kind, body, header(request, "x-session-id"));
    const named = header(request, "x-svc-engine");
    const pinned = named === undefined ? this.#keeperOf(prompt, path) : engineNamed(engines, named);
    // Refuses a model that nobody serves.
    const servers = placement.servers(prompt.model);
    const asked = () =>
      (pinned === undefined ? servers.filter((engine) => engine.unfit === undefined) : [pinned]).toSorted(
        (one, other) => one.waitingTokens - other.waitingTokens,
      );
    const headers = () => {
      const authorization = header(request, "authorization");
      return authorization === undefined ? {} : { authorization };
    };
    const continued = { tokens: undefined, reason: "kind", detail: "the engine has the conversation's beginning" } as const;
    const tokens: Tokens | Promise<Tokens> = prompt.previousResponse === undefined ? tokenizer.tokensOf(prompt, path, asked, headers) : continued;
    const known: Known = { kind, prompt: bodiless(prompt), bytes: body.length, pinned };
    return tokens instanceof Promise ? tokens.then((made) => this.#score(known, made)) : this.#score(known, tokens);
  }

  #score({ kind, prompt, bytes, pinned }: Known, tokens: Tokens): Sought | Promise<Sought> {
    const { placement, metrics } = this.#options;
    if (tokens.tokens === undefined) {
      metrics.placed.inc({ tokens: "none" });
      if (kind !== "other" && kind !== "embeddings") metrics.tokensMissing.inc({ reason: tokens.reason });
      return { prompt, tokens, bytes, rows: {}, pinned };
    }
    metrics.placed.inc({ tokens: tokens.from });
    const rows = placement.rowsFor(prompt, tokens.tokens);
    if (!(rows instanceof Promise)) return { prompt, tokens, bytes, rows, pinned };
    return rows.then((found) => ({ prompt, tokens, bytes, rows: found, pinned }));
  }

  /** The engine that keeps what the request continues or names. */
  #keeperOf({ previousResponse }: Prompt, path: string): Engine | undefined {
    const id = previousResponse ?? /^\/v1\/responses\/([^/]+)/.exec(path)?.[1];
    if (id === undefined || id === "render" || id === "compact") return undefined;
    const { engines } = this.#options;
    const keeper = this.#responses.get(id) ?? (engines.length === 1 ? engines[0] : undefined);
    if (keeper === undefined)
      throw new Refusal(
        "response_not_found",
        `the response ${JSON.stringify(id.slice(0, 100))} was not answered through this router since its start, so that its engine is not known: send the whole conversation as input`,
      );
    return keeper;
  }
}

/** The prompt without its body: a long stream must not keep that. */
function bodiless({ kind, model, cacheSalt, session, previousResponse, priority = 0 }: Prompt): Prompt {
  return { kind, model, body: {}, cacheSalt, session, previousResponse, priority };
}

function header({ headers }: Head, name: string): string | undefined {
  const value = headers[name];
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** The model decides for paths that the router does not know, too, where there is one. */
function otherPrompt(request: Head, body: Buffer): Prompt {
  let model: unknown;
  if (/json/.test(request.headers["content-type"] ?? "") && body.length > 0) {
    try {
      model = (JSON.parse(body.toString("utf8")) as { model?: unknown } | null)?.model;
    } catch {
      // The engine says what is wrong with it.
    }
  }
  const session = sessionOf(header(request, "x-session-id"));
  return { kind: "other", model: typeof model === "string" && model !== "" ? model : undefined, body: {}, cacheSalt: "", session, previousResponse: undefined };
}
