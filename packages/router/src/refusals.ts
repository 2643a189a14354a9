// The router's own answers: errors in OpenAI's shape, which Anthropic's clients read as well, with a code for programs.
import type { ServerResponse } from "node:http";

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
  body_timeout: 408,
  body_too_large: 413,
  /** Counted only: nobody is there to read it. */
  client_gone: 499,
  queue_full: 429,
  queue_timeout: 429,
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
}

export function errorBody(code: RefusalCode, message: string) {
  const status = statuses[code];
  const type = types[status] ?? (status < 500 ? "invalid_request_error" : "server_error");
  return { type: "error", error: { message, type, param: null, code } };
}

/** If the answer has begun already, the connection is closed instead, so that the client cannot take the part for the whole. */
export function refuse(response: ServerResponse, refusal: Refusal): void {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  if (refusal.retryAfterSeconds !== undefined) response.setHeader("retry-after", String(Math.max(1, Math.ceil(refusal.retryAfterSeconds))));
  send(response, refusal.status, refusal.body());
}

export function send(response: ServerResponse, status: number, body: string, type: string = "application/json; charset=utf-8"): void {
  response.writeHead(status, { "content-type": type, "content-length": Buffer.byteLength(body) });
  response.end(body);
}
