// Converts requests and responses of Node's HTTP server to and from those of the fetch standard, which the protocol's SDK uses.
import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";

/** Returns a fetch request without a body, since the server reads and limits the body itself. Its signal aborts when the client disconnects. */
export function webRequest({ method = "GET", url = "/", headers }: IncomingMessage, response: ServerResponse): Request {
  const left = new AbortController();
  response.once("close", () => {
    if (!response.writableFinished) left.abort();
  });
  const given = new Headers();
  for (const [name, value] of Object.entries(headers)) if (value !== undefined) given.set(name, Array.isArray(value) ? value.join(", ") : value);
  return new Request(new URL(url, `http://${headers.host ?? "localhost"}`), { method, headers: given, signal: left.signal });
}

/** Resolves when the body has been sent or the client has disconnected. */
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
