// The request and response of Node's HTTP server as those of the fetch standard, which the protocol's SDK takes and gives.
import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";

/** The body is not part of it, because the server reads and limits it. Its signal aborts when the client leaves. */
export function webRequest({ method = "GET", url = "/", headers }: IncomingMessage, response: ServerResponse): Request {
  const left = new AbortController();
  response.once("close", () => {
    if (!response.writableFinished) left.abort();
  });
  const given = new Headers();
  for (const [name, value] of Object.entries(headers)) if (value !== undefined) given.set(name, Array.isArray(value) ? value.join(", ") : value);
  return new Request(new URL(url, `http://${headers.host ?? "localhost"}`), { method, headers: given, signal: left.signal });
}

/** Resolves when the body was sent, or the client has left. */
export async function sendResponse(response: ServerResponse, { status, headers, body }: Response): Promise<void> {
  response.writeHead(status, Object.fromEntries(headers));
  if (body === null) {
    response.end();
    return;
  }
  response.flushHeaders();
  const reader = body.getReader();
  response.once("close", () => void reader.cancel().catch(() => undefined));
  for (;;) {
    const { done, value } = await reader.read();
    if (done || response.destroyed) break;
    if (!response.write(value)) await Promise.race([once(response, "drain"), once(response, "close")]);
  }
  response.end();
}
