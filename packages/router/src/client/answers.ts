// The router's own answers to a client's request.
import { type Refusal, singleBytes } from "../refusals.ts";
import type { ClientRequest } from "./request.ts";

/** If the answer has begun already, the connection is closed instead, so that the client cannot take the part for the whole. */
export function sendRefusal(request: ClientRequest, refusal: Refusal): void {
  if (request.hasBegun) request.break();
  else send(request, refusal.status, refusal.body(), undefined, refusal.retryLine);
}

/** `lines`: further header lines. */
export function send(request: ClientRequest, status: number, body: string, type = "application/json; charset=utf-8", lines = ""): void {
  const text = singleBytes(body);
  request.begin(status, `content-type: ${type}\r\ncontent-length: ${text.length}\r\n${lines}`);
  request.end(request.isHead ? "" : text);
}
