// Large bodies for tests: reproducible bytes that need no storage, and servers that hash and send them.
import { createHash } from "node:crypto";
import { once } from "node:events";
import type { RequestListener } from "node:http";

/** Each piece is a hash of its number, repeated. */
export function* pieces(total: number): Generator<Buffer> {
  for (let sent = 0, number = 0; sent < total; number++) {
    const piece = Buffer.alloc(Math.min(64 * 1024, total - sent), createHash("sha256").update(String(number)).digest());
    sent += piece.length;
    yield piece;
  }
}

export function digestOf(total: number): string {
  const hash = createHash("sha256");
  for (const piece of pieces(total)) hash.update(piece);
  return hash.digest("hex");
}

/** Answers with the digest of the request body and `total` bytes, with Content-Length exactly if the request had one. */
export function bulkServer(total: number): RequestListener {
  return async (request, response) => {
    const hash = createHash("sha256");
    for await (const piece of request) hash.update(piece as Buffer);
    response.setHeader("x-digest", hash.digest("hex"));
    if (request.headers["content-length"] !== undefined) response.setHeader("content-length", total);
    for (const piece of pieces(total)) if (!response.write(piece)) await once(response, "drain");
    response.end();
  };
}

/** Sends `total` bytes to a port of a sandbox; returns the digests that the server and the client computed. */
export async function exchangeBulk(
  proxyPort: number,
  total: number,
  chunked: boolean,
  routing: Record<string, string>,
): Promise<{ up: string | null; down: string }> {
  const headers = { ...routing, ...(chunked ? {} : { "content-length": String(total) }) };
  const response = await fetch(`http://127.0.0.1:${proxyPort}/`, {
    method: "POST",
    body: ReadableStream.from(pieces(total)),
    duplex: "half",
    headers,
  } as RequestInit);
  const hash = createHash("sha256");
  for await (const piece of response.body as ReadableStream<Uint8Array>) hash.update(piece);
  return { up: response.headers.get("x-digest"), down: hash.digest("hex") };
}
