// Reads from a request's body which model and prompt it has, as far as placement needs them.
import { createHash } from "node:crypto";
import { BodyScan } from "./body-scan.ts";
import { Refusal } from "./refusals.ts";

export type PromptKind = "chat" | "completion" | "responses" | "messages" | "embeddings" | "other";

export const promptPaths: Readonly<Record<string, PromptKind>> = {
  "/v1/chat/completions": "chat",
  "/v1/completions": "completion",
  "/v1/responses": "responses",
  "/v1/messages": "messages",
  "/v1/embeddings": "embeddings",
};

export type Body = Readonly<Record<string, unknown>>;
export type Prompt = {
  readonly kind: PromptKind;
  readonly model: string | undefined;
  /** Parsed when it is first read. @throws Refusal where it is not valid */
  readonly body: Body;
  /** The bytes of the body, where their members could be found without parsing them. */
  readonly scan?: BodyScan | undefined;
  readonly cacheSalt: string;
  /** From the request's header or its `user`. */
  readonly session: string | undefined;
  readonly previousResponse: string | undefined;
  /** As in vLLM: lower is more urgent, and 0 is the default. */
  readonly priority?: number;
};

const text = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : undefined);

/** Deeper bodies would end the calls that print them, here and in engines, with an overflow of the stack. */
const MAX_DEPTH = 512;

/** Returns whether the text has more opening brackets than a body may be deep; most bodies have few, and need no walk then. */
function mayBeDeep(bytes: Buffer): boolean {
  let found = 0;
  for (const bracket of ["[", "{"]) for (let at = bytes.indexOf(bracket); at >= 0; at = bytes.indexOf(bracket, at + 1)) if (++found > MAX_DEPTH) return true;
  return false;
}

/** Walks level by level, since a recursive walk would overflow as well. */
function isDeep(value: unknown): boolean {
  let level: unknown[] = [value];
  for (let depth = 0; depth <= MAX_DEPTH; depth++) {
    const next: unknown[] = [];
    for (const each of level) {
      if (typeof each !== "object" || each === null) continue;
      for (const child of Array.isArray(each) ? each : Object.values(each)) if (typeof child === "object" && child !== null) next.push(child);
    }
    if (next.length === 0) return false;
    level = next;
  }
  return true;
}

const MAX_SESSION_CHARS = 64;

/** Sessions are remembered by the thousand, and a body's `user` may be of any length. */
export function sessionOf(session: string | undefined): string | undefined {
  if (session === undefined || session.length <= MAX_SESSION_CHARS) return session;
  return createHash("sha1").update(session).digest("base64");
}

/** The member whose entries a conversation appends to. */
export const listOf = (kind: PromptKind): "messages" | "input" | "prompt" => (kind === "completion" ? "prompt" : kind === "responses" ? "input" : "messages");

const scannable: ReadonlySet<PromptKind> = new Set(["chat", "completion", "responses", "messages"]);

/** A prompt whose body is parsed only if its tokens are not known. */
class ScannedPrompt implements Prompt {
  readonly kind: PromptKind;
  readonly model: string;
  readonly cacheSalt: string;
  readonly session: string | undefined;
  readonly previousResponse = undefined;
  readonly priority: number;
  readonly scan: BodyScan;
  readonly #bytes: Buffer;
  #body: Body | undefined;

  constructor(kind: PromptKind, model: string, scan: BodyScan, bytes: Buffer, sessionHeader: string | undefined) {
    const priority = scan.value("priority");
    this.kind = kind;
    this.model = model;
    this.cacheSalt = text(scan.value("cache_salt")) ?? "";
    this.session = sessionOf(text(sessionHeader) ?? text(scan.value("user")));
    this.priority = Number.isSafeInteger(priority) ? (priority as number) : 0;
    this.scan = scan;
    this.#bytes = bytes;
  }

  get body(): Body {
    return (this.#body ??= parseBody(this.#bytes));
  }
}

/** @throws Refusal where the body cannot be a request of that kind. */
export function readPrompt(kind: PromptKind, bytes: Buffer, sessionHeader: string | undefined): Prompt {
  const scan = scannable.has(kind) ? BodyScan.of(bytes, listOf(kind)) : undefined;
  const named = text(scan?.value("model"));
  // A request that continues a response needs no tokens, so that its body would never be parsed, and never be judged.
  if (scan !== undefined && named !== undefined && !scan.has("previous_response_id")) return new ScannedPrompt(kind, named, scan, bytes, sessionHeader);
  const members = parseBody(bytes);
  const model = text(members["model"]);
  if (model === undefined) throw new Refusal("invalid_request", "model: expected the name of a model; GET /v1/models lists them");
  return {
    kind,
    model,
    body: members,
    cacheSalt: text(members["cache_salt"]) ?? "",
    session: sessionOf(text(sessionHeader) ?? text(members["user"])),
    previousResponse: text(members["previous_response_id"]),
    ...(Number.isSafeInteger(members["priority"]) ? { priority: members["priority"] as number } : {}),
  };
}

/** @throws Refusal */
function parseBody(bytes: Buffer): Body {
  let body: unknown;
  try {
    body = JSON.parse(bytes.toString("utf8"));
    if (mayBeDeep(bytes) && isDeep(body)) throw new Refusal("invalid_request", `the body nests lists and objects deeper than ${MAX_DEPTH} levels`);
  } catch (error) {
    if (error instanceof Refusal) throw error;
    throw new Refusal("invalid_json", `the body is not valid JSON: ${(error as Error).message}`);
  }
  if (typeof body !== "object" || body === null || Array.isArray(body)) throw new Refusal("invalid_request", "the body must be a JSON object");
  return body as Body;
}

/** Token ids that stand in the request itself: a completion's prompt, as one list or the first of several. */
export function givenTokens(given: Prompt): Uint32Array | undefined {
  if (given.kind !== "completion") return undefined;
  const scanned = given.scan?.tokenIDs();
  if (scanned !== undefined) return scanned;
  const { prompt } = given.body;
  if (!Array.isArray(prompt)) return undefined;
  const list: unknown = Array.isArray(prompt[0]) ? prompt[0] : prompt;
  return tokensIn(list);
}

/** Returns the token ids of a list; undefined if it is none, is empty, or has anything else. */
export function tokensIn(list: unknown): Uint32Array | undefined {
  if (!Array.isArray(list) || list.length === 0) return undefined;
  const tokens = new Uint32Array(list.length);
  for (let at = 0; at < list.length; at++) {
    const token: unknown = list[at];
    if (typeof token !== "number" || token >>> 0 !== token) return undefined;
    tokens[at] = token;
  }
  return tokens;
}

/** True for a prompt with images, audio or files: its tokens alone do not tell which blocks it shares. */
export function isMultimodal({ body }: Prompt): boolean {
  const items = [body["messages"], body["input"]].filter(Array.isArray).flat() as unknown[];
  return items.some((item) => {
    const content = (item as { content?: unknown } | null)?.content;
    return Array.isArray(content) && content.some((part) => /image|audio|video|file|document/.test(String((part as { type?: unknown } | null)?.type)));
  });
}
