// The other nodes of the deployment, and the client for what one of them offers.

import { setTimeout as sleep } from "node:timers/promises";
import { failureOf, noAnswer } from "@svc/contract/call.ts";
import { OFFERS_PATH, type OfferAnswer, offerAnswer } from "@svc/contract/cluster.ts";
import { asFailure, Failure } from "@svc/contract/failures.ts";
import type { PeerClient } from "@svc/kit/peers/peer-client.ts";
import { MAX_MANIFEST_BYTES } from "./manifest.ts";

export type Neighbour = { readonly nodeID: string; readonly url: string /** Absent: by plain HTTP. */; readonly fetch?: PeerClient["fetch"] | undefined };

/** The state of other nodes according to etcd, or as last known from it. */
export interface Neighbours {
  /** Resolves once etcd has been read, and immediately afterwards. */
  readonly read: Promise<void>;
  /** The nodes that serve. */
  readonly live: readonly Neighbour[];
  /** The names of members that do not serve now. */
  readonly away: readonly string[];
}

const FIND_MS = 2_000;
/** The bound is long because the other node verifies checksums and packs layers before it answers. */
const MANIFEST_MS = 10 * 60_000;
/** The bound for one chunk, which may wait on the other node for the bandwidth that it allows. */
const CHUNK_MS = 60_000;
const MAX_ANSWER_BYTES = 64 * 1024;

export interface Offered {
  manifest(withBase: boolean): Promise<Buffer>;
  chunk(sha256: string, length: number): Promise<Buffer>;
}

/** Asks what `asked` means on that node. @throws SERVER_UNREACHABLE, and what the node answers. */
export async function askOffer(at: Neighbour, apiKey: string, asked: string, signal: AbortSignal): Promise<OfferAnswer> {
  const query = new URLSearchParams({ asked });
  const bytes = await get(at, apiKey, `${OFFERS_PATH}?${query}`, MAX_ANSWER_BYTES, AbortSignal.any([signal, AbortSignal.timeout(FIND_MS)]));
  return offerAnswer.parse(JSON.parse(bytes.toString("utf8")));
}

/** Every request retries while the node is busy, until `signal` aborts. @throws as `askOffer`. */
export function openOffered(at: Neighbour, apiKey: string, id: string, signal: AbortSignal): Offered {
  let isWithBase = false;
  const withRetries = async (path: string, maxBytes: number, timeoutMs: number): Promise<Buffer> => {
    for (;;) {
      try {
        return await get(at, apiKey, `${OFFERS_PATH}/${path}?base=${isWithBase}`, maxBytes, AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]));
      } catch (error) {
        const failure = asFailure(error);
        if (failure.name !== "TOO_MANY_REQUESTS") throw error;
        await sleep((failure.retryAfterSeconds ?? 1) * 1000, undefined, { signal, ref: false }).catch(() => {
          throw failure;
        });
      }
    }
  };
  return {
    manifest(withBase) {
      isWithBase = withBase;
      return withRetries(id, MAX_MANIFEST_BYTES, MANIFEST_MS);
    },
    chunk: (sha256, length) => withRetries(`${id}/${sha256}`, length, CHUNK_MS),
  };
}

async function get({ nodeID, url, fetch: ask = fetch }: Neighbour, apiKey: string, path: string, maxBytes: number, signal: AbortSignal): Promise<Buffer> {
  const lost = (cause: unknown) => {
    const why = signal.aborted ? "it did not answer in time" : noAnswer(url, cause).message;
    return new Failure("SERVER_UNREACHABLE", `node ${nodeID} cannot be read: ${why}`, { cause, details: { node: nodeID }, retryAfterSeconds: 1 });
  };
  const response = await ask(`${url}${path}`, { headers: { "x-api-key": apiKey }, signal }).catch((cause: unknown) => Promise.reject(lost(cause)));
  const most = response.ok ? maxBytes : MAX_ANSWER_BYTES;
  const parts: Uint8Array[] = [];
  let bytes = 0;
  try {
    for await (const part of response.body ?? []) {
      bytes += part.length;
      if (bytes > most) throw new Error(`its answer is longer than ${most} bytes`);
      parts.push(part);
    }
  } catch (cause) {
    throw lost(cause);
  }
  const body = Buffer.concat(parts);
  if (response.ok) return body;
  throw failureOf(response.status, response.headers.get("retry-after"), body.toString("utf8"));
}
