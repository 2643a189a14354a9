// The router's own answers: errors in OpenAI's shape, which Anthropic's clients read as well, with a code for programs.
import { STATUS_CODES } from "node:http";

const statuses = {
  invalid_json: 400,
  invalid_request: 400,
  unauthorized: 401,
  admin_refused: 403,
  not_found: 404,
  model_not_found: 404,
  engine_not_found: 404,
  response_not_found: 404,
  method_not_allowed: 405,
  head_timeout: 408,
  body_timeout: 408,
  body_too_large: 413,
  unsupported_encoding: 415,
  /** Counted only: nobody is there to read it. */
  client_gone: 499,
  queue_full: 429,
  queue_timeout: 429,
  head_too_large: 431,
  engine_failed: 502,
  no_engine: 503,
  engine_unavailable: 503,
  router_full: 503,
  shutting_down: 503,
  engine_timeout: 504,
  deadline_exceeded: 504,
  internal: 500,
} as const;
export type RefusalCode = keyof typeof statuses;

const types: Readonly<Record<number, string>> = {
  401: "authentication_error",
  403: "permission_error",
  404: "not_found_error",
  429: "rate_limit_error",
};

/** An answer of the router's own. */
export class Refusal extends Error {
  readonly code: RefusalCode;
  readonly retryAfterSeconds: number | undefined;

  constructor(code: RefusalCode, message: string, retryAfterSeconds?: number) {
    super(message);
    this.code = code;
    this.retryAfterSeconds = retryAfterSeconds;
  }

  get status(): number {
    return statuses[this.code];
  }

  body(): string {
    return JSON.stringify(errorBody(this.code, this.message));
  }

  get retryLine(): string {
    return this.retryAfterSeconds === undefined ? "" : `retry-after: ${Math.max(1, Math.ceil(this.retryAfterSeconds))}\r\n`;
  }

  /** The whole answer that ends a connection whose request could not be read. */
  answer(): string {
    const body = singleBytes(this.body());
    const type = "application/json; charset=utf-8";
    return `HTTP/1.1 ${this.status} ${STATUS_CODES[this.status]}\r\ncontent-type: ${type}\r\ncontent-length: ${body.length}\r\n${this.retryLine}connection: close\r\n\r\n${body}`;
  }
}

export function errorBody(code: RefusalCode, message: string) {
  const status = statuses[code];
  const type = types[status] ?? (status < 500 ? "invalid_request_error" : "server_error");
  return { type: "error", error: { message, type, param: null, code } };
}

/** The text as UTF-8, one character per byte. */
export const singleBytes = (text: string): string => Buffer.from(text).toString("latin1");
