// Downloads a running indexer's snapshot to a file, bounded in bytes and in the time without progress.
import { createWriteStream, mkdirSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { Readable, Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import { fail } from "@svc/contract/failures.ts";
import { type PeerClient, plainPeers } from "@svc/kit/peers/peer-client.ts";
import { asDiskFailure } from "../registrations/disk.ts";

/** A sibling takes some seconds to make the snapshot; then bytes come without a break. */
const SILENT_MS = 60_000;

export type SiblingOptions = {
  readonly url: string;
  readonly apiKey: string;
  readonly folder: string;
  readonly maxBytes: number;
  readonly silentMs?: number;
  /** Reaches a sibling at an `https://` URL; absent: plain HTTP only. */
  readonly peers?: PeerClient;
};

/** Returns the file's path. */
export async function fetchSibling({ url, apiKey, folder, maxBytes, silentMs = SILENT_MS, peers = plainPeers() }: SiblingOptions): Promise<string> {
  const path = join(folder, "sibling.snapshot.new");
  const silence = new AbortController();
  const says = `indexer.bootstrap_from: ${url}/snapshot`;
  let timer = setTimeout(() => silence.abort(), silentMs);
  let received = 0;
  try {
    const response = await peers.fetch(`${url.replace(/\/+$/, "")}/snapshot`, {
      signal: silence.signal,
      headers: apiKey === "" ? {} : { authorization: `Bearer ${apiKey}` },
    });
    if (!response.ok || response.body === null) fail("SERVER_UNREACHABLE", `${says} answered ${response.status}`);
    const counted = new Transform({
      transform(chunk: Buffer, _encoding, done) {
        clearTimeout(timer);
        timer = setTimeout(() => silence.abort(), silentMs);
        received += chunk.length;
        // The announced length is not trusted.
        if (received > maxBytes) done(new Error(`it has more than ${maxBytes} bytes, which indexer.memory_budget_mb cannot hold`));
        else done(null, chunk);
      },
    });
    mkdirSync(folder, { recursive: true });
    await pipeline(Readable.fromWeb(response.body as never), counted, createWriteStream(path), { signal: silence.signal });
    return path;
  } catch (error) {
    await rm(path, { force: true }).catch(() => {});
    const failure = asDiskFailure(error, `the snapshot of ${url}`);
    if (failure !== error) throw failure;
    const reason = silence.signal.aborted ? `nothing came for ${silentMs / 1000} s` : (error as Error).message;
    return fail("SERVER_UNREACHABLE", `${says} cannot be fetched: ${reason}`, { cause: error });
  } finally {
    clearTimeout(timer);
  }
}
