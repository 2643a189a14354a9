// Reads the JSON body of a page's request; the content type keeps forms of other pages out.
import type { Readable } from "node:stream";
import { fail } from "@svc/contract/failures.ts";
import type { FastifyRequest } from "fastify";

const MAX_BYTES = 2 * 1024 * 1024;

/** @throws UNSUPPORTED_MEDIA_TYPE, PAYLOAD_TOO_LARGE, INVALID_REQUEST. */
export async function readJSON(request: FastifyRequest): Promise<Record<string, unknown>> {
  if (!/^application\/json\b/.test(String(request.headers["content-type"] ?? ""))) fail("UNSUPPORTED_MEDIA_TYPE", "expected a body of type application/json");
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of (request.body ?? []) as Readable | []) {
    bytes += (chunk as Buffer).length;
    if (bytes > MAX_BYTES) fail("PAYLOAD_TOO_LARGE", `the body is larger than ${MAX_BYTES} bytes`);
    chunks.push(chunk as Buffer);
  }
  try {
    const value: unknown = JSON.parse(Buffer.concat(chunks).toString("utf8"));
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch {
    // The failure below says the same for every kind of fault.
  }
  return fail("INVALID_REQUEST", "the body is not a JSON object");
}
