// Reads the bytes of replicas by the transfer engine or from files, and selects those that arrived complete, in time and with the right checksum.
import type { Failure } from "@svc/contract/failures.ts";
import { isBucketSegment, isDiskSegment, isFileSegment } from "./disk/places.ts";
import { type Flow, type Move, move, moveFiles } from "./flow.ts";
import type { Part } from "./memory.ts";
import type { Avoided, Places } from "./places.ts";
import { checksumOf } from "./put.ts";
import { wordsOf } from "./store-files.ts";

export type ReadParts = { readonly places: Places; readonly avoided: Avoided; count(what: "wrongBytes" | "unreached"): void };

type Replica = { readonly endpoint: string; readonly address: bigint };
export type Source = Replica & {
  /** The master's id of a replica on a disk. */
  readonly fileID?: bigint | undefined;
  /** The master's id of a replica in a NOF segment, whose bytes are always verified, since a power failure may have lost some. */
  readonly nofID?: bigint | undefined;
  /** The name of a file in the shared folder. */
  readonly fileName?: string | undefined;
  readonly index: number;
  readonly sizeBytes: number;
  readonly checksum: bigint | undefined;
  readonly untilMs: number;
  readonly parts: readonly Part[];
  /** The bytes that arrived have another checksum than the stored ones. */
  isWrong?: boolean;
};

const READ_MS = 1000;
/** The time limit for files that are first fetched from an S3-compatible server. */
const BUCKET_MS = 8000;
const BYTES_PER_MS = 50_000;
const FILE_BYTES_PER_MS = 20_000;
const AVOID_MS = 2000;

/** Returns the sources that were read with the right bytes. */
export function* readSome(parts: ReadParts, sources: readonly Source[], isVerified: boolean): Flow<Source[]> {
  const inFiles = sources.filter(({ fileName }) => fileName !== undefined);
  const moved = inFiles.length === 0 ? sources : sources.filter(({ fileName }) => fileName === undefined);
  const failed = yield* readMoved(parts, moved);
  const files = yield* readFiles(inFiles);
  // Once the lease has ended, the range may have been reused for another object during the read.
  const now = performance.now();
  return sources.filter((source) => {
    if (failed.has(source.endpoint) || (source.fileName !== undefined && !files.has(source)) || now >= source.untilMs) return false;
    if ((!isVerified && source.nofID === undefined) || source.checksum === undefined || checksumOf(source.parts) === source.checksum) return true;
    parts.count("wrongBytes");
    source.isWrong = true;
    return false;
  });
}

/** Returns the sources whose file was read completely. */
function* readFiles(sources: readonly Source[]): Flow<ReadonlySet<Source>> {
  if (sources.length === 0) return new Set();
  const bytes = sources.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  const troubles = yield* moveFiles(
    "READ",
    sources.map(({ fileName, sizeBytes, parts }) => ({ name: fileName as string, sizeBytes, words: wordsOf(parts) })),
    READ_MS + Math.ceil(bytes / FILE_BYTES_PER_MS),
  );
  sources.forEach((source, at) => {
    if (troubles[at] === "damaged") source.isWrong = true;
  });
  return new Set(sources.filter((_, at) => troubles[at] === undefined));
}

/** Returns the holders that were not reached. */
function* readMoved(parts: ReadParts, sources: readonly Source[]): Flow<ReadonlyMap<string, Failure>> {
  if (sources.length === 0) return new Map();
  const words = new Map<string, bigint[]>();
  let bytes = 0;
  for (const { endpoint, address, parts: into, sizeBytes } of sources) {
    bytes += sizeBytes;
    const list = words.get(endpoint) ?? [];
    words.set(endpoint, list);
    let from = address;
    for (const part of into) {
      const length = BigInt(part.sizeBytes);
      list.push(part.address, from, length);
      from += length;
    }
  }
  const moves: Move[] = [...words].map(([endpoint, each]) => ({ endpoint, words: BigUint64Array.from(each) }));
  const failed = new Map<string, Failure>();
  for (const isSlow of [false, true]) {
    const some = moves.filter(({ endpoint }) => isBucketSegment(endpoint) === isSlow);
    if (some.length === 0) continue;
    const unreached = yield* move(
      "READ",
      some,
      (isSlow ? BUCKET_MS : READ_MS) + Math.ceil(bytes / (some.some(({ endpoint }) => isFileSegment(endpoint)) ? FILE_BYTES_PER_MS : BYTES_PER_MS)),
    );
    for (const [endpoint, failure] of unreached) failed.set(endpoint, failure);
  }
  for (const endpoint of failed.keys()) {
    parts.count("unreached");
    // One missing file does not mean that its disk is unreachable.
    if (isDiskSegment(endpoint)) continue;
    parts.avoided.add(endpoint, AVOID_MS);
    parts.places.forgetHolder(endpoint);
  }
  return failed;
}
