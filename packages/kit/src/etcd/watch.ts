// Watches the keys below a prefix: reports all of them, then each change, and recovers after a cut, a compaction or a lost history.
import type { ClientRequest, IncomingMessage } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { asFailure, fail } from "@svc/contract/failures.ts";
import { z } from "zod";
import type { Checks } from "./checks.ts";
import type { Endpoints } from "./endpoints.ts";
import { behind, encode, header, int64, type KeyValue, keyValue } from "./wire.ts";

export type WatchEvent =
  | { readonly type: "put"; readonly key: string; readonly entry: KeyValue }
  | { readonly type: "delete"; readonly key: string; readonly modRevision: bigint };

export type WatchOptions = {
  /** Starts with the changes after this revision, without an initial list. */
  readonly fromRevision?: bigint;
  /** Called with the complete list: at the start, and again if changes were missed because etcd has compacted them. */
  readonly onAll: (entries: readonly KeyValue[], revision: bigint) => void;
  /** Called with the changes of one or more whole transactions, in order. */
  readonly onEvents: (events: readonly WatchEvent[], revision: bigint) => void;
  /** Called when the known state may become stale; `onCurrent` ends this. */
  readonly onInterrupted?: (reason: string) => void;
  readonly onCurrent?: () => void;
  /** The maximum age of a stream: a middlebox may drop a connection without notice. */
  readonly renewMs?: number;
};

export type Watch = {
  /** The revision of the last change that this watch has seen. */
  readonly revision: bigint;
  /** False from an interruption until the stream continues. */
  readonly isCurrent: boolean;
  close(): Promise<void>;
};

type WatchParts = {
  readonly endpoints: Endpoints;
  readonly checks: Checks;
  readonly list: (prefix: string) => Promise<{ readonly entries: readonly KeyValue[]; readonly revision: bigint }>;
  readonly prefix: string;
};

/** Why a stream ended. After "renewed" another stream starts at the same revision; after "history lost" a new list comes first. */
type End = "renewed" | "history lost";

const RENEW_MS = 60_000;
const FIRST_PAUSE_MS = 25;
const LONGEST_PAUSE_MS = 1_000;
const MAX_LINE_BYTES = 64 * 1024 * 1024;

const message = z.object({
  error: z.object({ message: z.string().optional() }).optional(),
  result: z
    .object({
      header,
      created: z.boolean().default(false),
      canceled: z.boolean().default(false),
      compact_revision: int64,
      cancel_reason: z.string().default(""),
      events: z.array(z.object({ type: z.enum(["PUT", "DELETE"]).default("PUT"), kv: keyValue })).default([]),
    })
    .optional(),
});

export function openWatch({ endpoints, checks, list, prefix }: WatchParts, options: WatchOptions, onEnd: () => void): Watch {
  const { renewMs = RENEW_MS } = options;
  const range = { key: encode(prefix), range_end: behind(prefix) };
  const closing = new AbortController();
  let known = options.fromRevision;
  let isCurrent = false;

  function current(): void {
    if (isCurrent) return;
    isCurrent = true;
    options.onCurrent?.();
  }
  function interrupted(reason: string): void {
    if (!isCurrent) return;
    isCurrent = false;
    options.onInterrupted?.(reason);
  }

  async function follow(): Promise<void> {
    let pauseMs = FIRST_PAUSE_MS;
    while (!closing.signal.aborted) {
      try {
        if (known === undefined) {
          const found = await list(prefix);
          if (closing.signal.aborted) return;
          known = found.revision;
          deliver(() => options.onAll(found.entries, found.revision));
        }
        const end = await stream(endpoints.preferred, known + 1n);
        pauseMs = FIRST_PAUSE_MS;
        if (end === "history lost") known = undefined;
      } catch (error) {
        if (closing.signal.aborted) return;
        interrupted(asFailure(error).message);
        await sleep(pauseMs, undefined, { signal: closing.signal }).catch(() => undefined);
        pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
      }
    }
  }

  /** Returns when another stream should follow. @throws if the stream breaks. */
  async function stream(url: string, from: bigint): Promise<End> {
    const body = { create_request: { ...range, start_revision: String(from), progress_notify: true } };
    const { call, answer } = await endpoints.stream(url, "/v3/watch", body).catch((error: unknown) => {
      endpoints.avoid(url);
      throw error;
    });
    const ended = Promise.withResolvers<End>();
    const stop = () => ended.resolve("renewed");
    const timer = setTimeout(stop, renewMs);
    const leave = checks.join(url, { prefix, revision: () => known, onHistoryLost: () => ended.resolve("history lost"), onBroken: broken });
    closing.signal.addEventListener("abort", stop);
    function broken(error: unknown): void {
      endpoints.avoid(url);
      ended.reject(error);
    }
    try {
      readLines(call, answer, (line) => {
        try {
          const end = take(line);
          if (end !== undefined) ended.resolve(end);
        } catch (error) {
          broken(error);
        }
      }).then(() => broken(new Error(`${url} ended the stream`)), broken);
      return await ended.promise;
    } finally {
      closing.signal.removeEventListener("abort", stop);
      clearTimeout(timer);
      leave();
      call.destroy();
    }
  }

  function take(line: string): End | undefined {
    const { error, result } = message.parse(JSON.parse(line));
    if (result === undefined) return fail("ETCD_UNAVAILABLE", `etcd ended the watch of ${prefix}: ${error?.message ?? line.slice(0, 200)}`);
    const { revision } = result.header;
    // Either the revision was compacted, or the store is older than ours because it was recreated or restored.
    if (result.compact_revision > 0n || (known !== undefined && revision < known)) return "history lost";
    if (result.canceled) fail("ETCD_UNAVAILABLE", `etcd ended the watch of ${prefix}: ${result.cancel_reason}`);
    if (result.created) current();
    if (result.events.length > 0) {
      const events = result.events.map(
        ({ type, kv }): WatchEvent => (type === "PUT" ? { type: "put", key: kv.key, entry: kv } : { type: "delete", key: kv.key, modRevision: kv.modRevision }),
      );
      known = result.events.at(-1)?.kv.modRevision ?? revision;
      deliver(() => options.onEvents(events, known as bigint));
    } else if (!result.created) known = revision;
    return undefined;
  }

  const following = follow();
  return {
    get revision() {
      return known ?? 0n;
    },
    get isCurrent() {
      return isCurrent;
    },
    async close() {
      closing.abort();
      await following;
      onEnd();
    },
  };
}

/** An exception of the caller's function is a bug of the caller: it ends the process rather than the stream. */
function deliver(work: () => void): void {
  try {
    work();
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}

/** Returns at the end of the answer. @throws if it breaks off, or a line exceeds MAX_LINE_BYTES. */
function readLines(call: ClientRequest, answer: IncomingMessage, onLine: (line: string) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    let chunks: Buffer[] = [];
    let bytes = 0;
    answer.on("data", (chunk: Buffer) => {
      let rest = chunk;
      for (let at = rest.indexOf(10); at !== -1; at = rest.indexOf(10)) {
        const line = Buffer.concat([...chunks, rest.subarray(0, at)]).toString("utf8");
        chunks = [];
        bytes = 0;
        rest = rest.subarray(at + 1);
        if (line.trim() !== "") onLine(line);
      }
      if (rest.length === 0) return;
      chunks.push(rest);
      bytes += rest.length;
      if (bytes > MAX_LINE_BYTES) call.destroy(new Error(`a message of more than ${MAX_LINE_BYTES} bytes`));
    });
    answer.once("end", resolve).once("error", reject);
    call.once("error", reject);
  });
}
