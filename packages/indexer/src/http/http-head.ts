// The head of a request: the fields that the server reads, and the bodies that it refuses before reading them.
import { hopNames, RequestHead } from "@svc/kit/proxy/request-head.ts";
import { MAX_HEAD_LINES } from "./http-limits.ts";
import { Refusal } from "./refusal.ts";

export const CONTENT_TYPE = hopNames.length + 1;
export const ACCEPT = hopNames.length + 2;
export const AUTHORIZATION = hopNames.length + 3;
export const API_KEY = hopNames.length + 4;
export const CONTENT_ENCODING = hopNames.length + 5;
/** All connections share one parser, since heads are parsed one at a time. */
export const head = new RequestHead(["content-type", "accept", "authorization", "x-api-key", "content-encoding"], MAX_HEAD_LINES);

export function bodyRefused(encoding: string, bodyBytes: number, maxBodyBytes: number): Refusal | undefined {
  if (!/^(identity)?$/i.test(encoding.trim()))
    return new Refusal(
      "unsupported",
      `Content-Encoding: expected none, got ${JSON.stringify(encoding.slice(0, 100))}; send the body uncompressed`,
      {},
      "UNSUPPORTED_MEDIA_TYPE",
    );
  if (bodyBytes <= maxBodyBytes) return undefined;
  return new Refusal("too_large", `the body has ${bodyBytes} bytes; the maximum is ${maxBodyBytes} (indexer.max_body_bytes)`);
}
