// One request of a client, and the way to answer it. The answer's head waits for the first bytes of its body, so that one write sends both.
import { STATUS_CODES } from "node:http";
import { CONNECTION, HTTP2_SETTINGS, hopNames, type RequestHead } from "@svc/kit/proxy/request-head.ts";
import type { HeldBody } from "../bodies.ts";

/** The headers that the router reads, by their names in lower case. */
const readNames = [
  "authorization",
  "x-api-key",
  "x-session-id",
  "x-request-timeout",
  "x-svc-engine",
  "x-svc-explain",
  "content-type",
  "x-request-id",
  "content-encoding",
] as const;
/** Headers of one hop that the proxy's parser does not know by itself. */
const droppedNames = ["proxy-authenticate", "proxy-authorization", "trailer"] as const;
/** The names for which a parser of clients' heads needs numbers. */
export const clientHeaderNames: readonly string[] = [...readNames, ...droppedNames];

const FIRST = hopNames.length + 1;
const [AUTHORIZATION, API_KEY, SESSION, TIMEOUT, ENGINE, EXPLAIN, CONTENT_TYPE, REQUEST_ID, ENCODING] = readNames.map((_, at) => FIRST + at) as [
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
];
/** Has 1 at the numbers of headers that do not pass to the engine as they came. Authorization and deadline are written again for each engine. */
const isDropped = new Uint8Array(256);
for (let id = 1; id <= HTTP2_SETTINGS; id++) isDropped[id] = 1;
for (const id of [AUTHORIZATION, TIMEOUT, ENGINE, EXPLAIN]) isDropped[id] = 1;
for (let at = 0; at < droppedNames.length; at++) isDropped[FIRST + readNames.length + at] = 1;

/** Headers of a request by their names in lower case. */
export type RequestHeaders = Readonly<Record<string, string | undefined>>;

/** The connection that carries a request, as far as the answer needs it. */
export interface AnswerCarrier {
  readonly keepsAlive: boolean;
  /** Bytes that the client has not taken yet. */
  readonly unsentBytes: number;
  send(text: string): void;
  finished(): void;
  destroy(): void;
}

/** Unsent bytes of an answer at which its engine should wait. */
const BEHIND_BYTES = 64 * 1024;

export class ClientRequest {
  readonly method: string;
  readonly target: string;
  readonly path: string;
  headers: RequestHeaders;
  readonly peer: string;
  /** Lines for the engine: all headers but those of this hop and those that the router writes itself. */
  readonly lines: string;
  readonly isHead: boolean;
  readonly isHttp10: boolean;
  /** When the head was complete, on the clock of `performance`. */
  readonly startedMs: number;
  body!: HeldBody;
  /** The client left before its answer was whole. */
  onGone: (() => void) | undefined;
  /** The client has taken all bytes that were written. */
  onDrain: (() => void) | undefined;
  #carrier: AnswerCarrier | undefined;
  #head = "";
  #hasBegun = false;

  /** `dropsKey`: engines do not get X-API-Key. */
  constructor(head: RequestHead, carrier: AnswerCarrier, peer: string, startedMs: number, dropsKey: boolean) {
    this.method = head.method;
    this.target = head.target;
    const query = this.target.indexOf("?");
    this.path = query < 0 ? this.target : this.target.slice(0, query);
    this.peer = peer;
    this.isHead = head.isHead;
    this.isHttp10 = head.isHttp10;
    this.startedMs = startedMs;
    this.headers = {
      authorization: head.value(AUTHORIZATION),
      "x-api-key": head.value(API_KEY),
      "x-session-id": head.value(SESSION),
      "x-request-timeout": head.value(TIMEOUT),
      "x-svc-engine": head.value(ENGINE),
      "x-svc-explain": head.value(EXPLAIN),
      "content-type": head.value(CONTENT_TYPE),
      "x-request-id": head.value(REQUEST_ID),
      "content-encoding": head.value(ENCODING),
    };
    this.lines = linesOf(head, dropsKey);
    this.#carrier = carrier;
  }

  /** The client's key is the router's, which must not reach engines. */
  forgetKey(): void {
    this.headers = { ...this.headers, authorization: undefined, "x-api-key": undefined };
  }

  /** True once a byte of the answer was sent. */
  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  /** True if the answer is whole, or its client is gone. */
  get isOver(): boolean {
    return this.#carrier === undefined;
  }

  /** The answer's status and its own lines; a call of `write` or `end` follows. */
  begin(status: number, lines: string): void {
    if (this.#carrier === undefined) return;
    this.#hasBegun = true;
    this.#head = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? "Unknown"}\r\n${lines}${this.#carrier.keepsAlive ? "\r\n" : "connection: close\r\n\r\n"}`;
  }

  /** Sends text with one character per byte. Returns false if the client is behind; `onDrain` follows. */
  write(text: string): boolean {
    const carrier = this.#carrier;
    if (carrier === undefined) return true;
    carrier.send(this.#head === "" ? text : this.#head + text);
    this.#head = "";
    return carrier.unsentBytes < BEHIND_BYTES;
  }

  end(text: string): void {
    const carrier = this.#carrier;
    if (carrier === undefined) return;
    const all = this.#head === "" ? text : this.#head + text;
    if (all !== "") carrier.send(all);
    this.#over();
    carrier.finished();
  }

  /** Ends the connection, so that the client cannot take a part of the answer for the whole. */
  break(): void {
    const carrier = this.#carrier;
    this.#over();
    carrier?.destroy();
  }

  /** The connection's end. */
  gone(): void {
    if (this.#carrier === undefined) return;
    const { onGone } = this;
    this.#over();
    onGone?.();
  }

  drained(): void {
    const { onDrain } = this;
    this.onDrain = undefined;
    onDrain?.();
  }

  #over(): void {
    this.#carrier = undefined;
    this.#head = "";
    this.onGone = this.onDrain = undefined;
  }
}

/** Passes runs of lines as they came. */
function linesOf(head: RequestHead, dropsKey: boolean): string {
  const { text, count, ids, lineStart, nameEnd } = head;
  const named = !head.has(CONNECTION) || head.isOnly(CONNECTION, "keep-alive") || head.isOnly(CONNECTION, "close") ? undefined : head.tokens(CONNECTION);
  let lines = "";
  let from = -1;
  for (let line = 0; line < count; line++) {
    const id = ids[line] as number;
    const drops = isDropped[id] === 1 || (dropsKey && id === API_KEY) || named?.includes(text.slice(lineStart[line], nameEnd[line]).toLowerCase()) === true;
    if (!drops) {
      if (from < 0) from = lineStart[line] as number;
    } else if (from >= 0) {
      lines += text.slice(from, lineStart[line]);
      from = -1;
    }
  }
  if (from >= 0) lines += text.slice(from, lineStart[count]);
  return lines;
}
