// Reads objects: from cached locations without asking the master, else from the locations it returns; never returns bytes with a wrong checksum.
import { Failure } from "@svc/contract/failures.ts";
import type { SharedFiles } from "../files/shared-files.ts";
import { codes } from "../rpc/codes.ts";
import type { Expected } from "../rpc/schema.ts";
import type { ReplicaList } from "../rpc/shapes.ts";
import { diskPlace } from "./disk/places.ts";
import { call, type Flow, wait } from "./flow.ts";
import type { Part } from "./memory.ts";
import { type Avoided, type Place, type Places, tooSmall } from "./places.ts";
import { readSome, type Source } from "./read-sources.ts";
import { doesNotLead } from "./session/connections.ts";
import { refusal } from "./session/refusal.ts";

// cached location ──read, checksum right, lease not over──> done
//      └──────────any of these not────────┐
// ask the master (lease) <────────────────┘
//      ├──no such object──> miss
//      └──read a replica ──failed, or wrong bytes──> the next replica ──none left──> ask again ──> miss or failure

/** The destination of one object's bytes: the caller's memory, or memory that is allocated once the size is known. */
export type Destination = {
  readonly key: string;
  /** Returns undefined if the object does not fit. It may be called again; the last result counts. */
  memoryFor(sizeBytes: number): readonly Part[] | undefined;
};

/** The object's size; undefined for a miss. */
export type GetOutcome = number | undefined | Failure;

export type GetParts = {
  readonly tenant: string;
  readonly fingerprint: string;
  readonly places: Places;
  readonly avoided: Avoided;
  /** This client's own segments, which are read first. */
  readonly ownEndpoint: string;
  /** True if checksums are compared for locations that the master just returned; for cached ones they always are. */
  readonly isVerified: boolean;
  readonly timeoutMs: number;
  /** The cluster's shared folder, if there is one and this client uses it. */
  readonly shared: SharedFiles | undefined;
  count(what: "readKnown" | "readAsked" | "readDisk" | "readNof" | "readShared" | "misses" | "wrongBytes" | "unreached"): void;
  /** Called for a key whose only bytes were damaged. */
  onDamaged(key: string): void;
  onRead(key: string): void;
};

const MAX_ROUNDS = 3;
const RETRY_MS = 20;

type Buffered = Extract<ReplicaList["replicas"][number]["place"], { type: "memory" | "nof" }>;
export function* getAll(parts: GetParts, wanted: readonly Destination[]): Flow<GetOutcome[]> {
  const outcomes: GetOutcome[] = new Array(wanted.length).fill(undefined);
  const open = new Set(wanted.keys());
  yield* readKnown(parts, wanted, open, outcomes);
  const endMs = performance.now() + parts.timeoutMs;
  for (let round = 0; open.size > 0; round++) {
    const indices = [...open];
    const askedMs = performance.now();
    let answers: readonly Expected<ReplicaList>[];
    try {
      answers = yield* call(
        "ReadObjects",
        indices.map((index) => (wanted[index] as Destination).key),
        parts.fingerprint,
        parts.tenant,
      );
    } catch (error) {
      if (performance.now() > endMs || !(error instanceof Failure) || error.name === "SHUTTING_DOWN") throw error;
      yield* wait(RETRY_MS);
      continue;
    }
    if (doesNotLead(answers) && performance.now() < endMs) {
      // A takeover is in progress, or the master reads its log.
      round--;
      yield* wait(RETRY_MS);
      continue;
    }
    const isLast = round + 1 >= MAX_ROUNDS || performance.now() > endMs;
    yield* readAnswers(parts, { wanted, indices, answers, askedMs, isLast }, open, outcomes);
  }
  return outcomes;
}

function* readKnown(parts: GetParts, wanted: readonly Destination[], open: Set<number>, outcomes: GetOutcome[]): Flow<void> {
  const sources: Source[] = [];
  wanted.forEach((destination, index) => {
    const place = parts.places.find(destination.key);
    if (place === undefined) return;
    const source = sourceOf(destination, index, place);
    if (source instanceof Failure) {
      outcomes[index] = source;
      open.delete(index);
    } else {
      sources.push(source);
    }
  });
  if (sources.length === 0) return;
  for (const source of yield* readSome(parts, sources, true)) {
    outcomes[source.index] = source.sizeBytes;
    open.delete(source.index);
    parts.count("readKnown");
  }
  for (const { index } of sources) if (open.has(index)) parts.places.forget((wanted[index] as Destination).key);
}

type Round = {
  readonly wanted: readonly Destination[];
  readonly indices: readonly number[];
  readonly answers: readonly Expected<ReplicaList>[];
  readonly askedMs: number;
  readonly isLast: boolean;
};

function* readAnswers(parts: GetParts, { wanted, indices, answers, askedMs, isLast }: Round, open: Set<number>, outcomes: GetOutcome[]): Flow<void> {
  const queues = new Map<number, Source[]>();
  indices.forEach((index, at) => {
    const answer = answers[at];
    const destination = wanted[index] as Destination;
    if (answer?.ok === true) {
      const candidates = candidatesOf(parts, destination, index, answer.value, askedMs);
      if (!(candidates instanceof Failure)) {
        queues.set(index, candidates);
        return;
      }
      outcomes[index] = candidates;
    } else if (answer?.code === codes.OBJECT_NOT_FOUND || answer?.code === codes.REPLICA_IS_NOT_READY) {
      parts.count("misses");
    } else {
      outcomes[index] = refusal(answer?.code ?? codes.INTERNAL_ERROR, `reading key ${destination.key}`);
    }
    open.delete(index);
  });
  // One replica of each object is tried at a time; objects that could not be read continue with their next replica.
  while (queues.size > 0) {
    const sources = [...queues.values()].flatMap((queue) => queue.shift() ?? []);
    for (const [index, queue] of queues) if (queue.length === 0 && !sources.some((source) => source.index === index)) queues.delete(index);
    if (sources.length === 0) break;
    const there = yield* readSome(parts, sources, parts.isVerified);
    const isReported = ({ fileID, nofID, isWrong }: Source) => fileID !== undefined || (nofID !== undefined && isWrong === true);
    const lost = sources.filter((source) => isReported(source) && !there.includes(source));
    if (lost.length > 0) yield* readAlone(parts, wanted, lost, there);
    for (const source of there) {
      outcomes[source.index] = source.sizeBytes;
      open.delete(source.index);
      queues.delete(source.index);
      parts.onRead((wanted[source.index] as Destination).key);
      parts.count(
        source.fileName !== undefined ? "readShared" : source.nofID !== undefined ? "readNof" : source.fileID === undefined ? "readAsked" : "readDisk",
      );
      // A file's location is not cached: it may be removed at any time, and the master counts reads to find frequently read objects.
      if (source.fileID !== undefined) continue;
      const { endpoint, address, sizeBytes, checksum } = source;
      const answer = answers[indices.indexOf(source.index)] as { ok: true; value: ReplicaList };
      if (checksum !== undefined)
        parts.places.learn((wanted[source.index] as Destination).key, { endpoint, address, sizeBytes, checksum }, askedMs, Number(answer.value.leaseMs));
    }
  }
  if (!isLast) {
    if (indices.some((index) => open.has(index))) yield* wait(RETRY_MS);
    return;
  }
  for (const index of indices) {
    if (!open.delete(index)) continue;
    parts.count("misses");
  }
}

/** Retries failed disk reads one at a time, since one bad file can fail the whole batch. Reports wrong bytes to the owner. */
function* readAlone(parts: GetParts, wanted: readonly Destination[], lost: readonly Source[], there: Source[]): Flow<void> {
  const perDisk = new Map<string, number>();
  for (const { endpoint } of lost) perDisk.set(endpoint, (perDisk.get(endpoint) ?? 0) + 1);
  for (const source of lost) {
    // The owner verifies a reported file, but no one verifies a NOF segment before the master drops the replica, so it is read again here.
    const isNof = source.nofID !== undefined;
    const again = (isNof || (perDisk.get(source.endpoint) ?? 0) > 1) && performance.now() < source.untilMs;
    if (isNof) source.isWrong = false;
    const found = again ? yield* readSome(parts, [source], parts.isVerified) : [];
    if (found.length > 0) {
      there.push(source);
      continue;
    }
    const { key } = wanted[source.index] as Destination;
    if (source.isWrong) parts.onDamaged(key);
    else if (isNof) continue;
    try {
      yield* call("ReportWrongBytes", key, (source.fileID ?? source.nofID) as bigint, parts.tenant);
    } catch {
      // The next reader reports it again.
    }
  }
}

function sourceOf(
  destination: Destination,
  index: number,
  place: Omit<Place, "renewMs" | "checksum"> & { checksum: bigint | undefined; fileID?: bigint; nofID?: bigint; fileName?: string },
): Source | Failure {
  const memory = destination.memoryFor(place.sizeBytes);
  if (memory === undefined) return tooSmall(place.sizeBytes, 0);
  const { endpoint, address, sizeBytes, checksum, untilMs, fileID, nofID, fileName } = place;
  return { index, endpoint, address, sizeBytes, checksum, untilMs, fileID, nofID, fileName, parts: clipped(memory, sizeBytes) };
}

/** Sorts the replicas: this client's memory, other reachable memory, NOF segments, then disks; holders that were unreachable come last. */
function candidatesOf(parts: GetParts, destination: Destination, index: number, list: ReplicaList, askedMs: number): Source[] | Failure {
  const rank = ({ endpoint, fileID, nofID }: Source) =>
    endpoint === parts.ownEndpoint ? 0 : fileID !== undefined ? 3 : parts.avoided.has(endpoint) ? 4 : nofID !== undefined ? 2 : 1;
  const found: Source[] = [];
  const untilMs = askedMs + Number(list.leaseMs);
  for (const replica of list.replicas) {
    const { place, id } = replica;
    const disk = diskPlace(replica);
    const fileName = place.type === "disk" ? parts.shared?.nameOf(place.path) : undefined;
    if (!("buffer" in place) && disk === undefined && fileName === undefined) continue;
    // A power failure may have left other bytes there, which only a checksum would detect.
    if (place.type === "nof" && list.checksum === undefined) continue;
    const known =
      place.type === "disk"
        ? { endpoint: "", address: 0n, sizeBytes: Number(place.sizeBytes), checksum: list.checksum, untilMs, fileID: id, fileName: fileName as string }
        : disk !== undefined
          ? { endpoint: disk.segment, address: disk.address, sizeBytes: disk.sizeBytes, checksum: list.checksum, untilMs, fileID: id }
          : {
              ...(place as Buffered).buffer,
              sizeBytes: Number((place as Buffered).buffer.sizeBytes),
              checksum: list.checksum,
              untilMs,
              ...(place.type === "nof" ? { nofID: id } : {}),
            };
    const source = sourceOf(destination, index, known);
    if (source instanceof Failure) return source;
    found.push(source);
  }
  return found.sort((one, other) => rank(one) - rank(other));
}

/** Returns the first `sizeBytes` of the parts. */
function clipped(memory: readonly Part[], sizeBytes: number): readonly Part[] {
  const first = memory[0];
  if (memory.length === 1 && first?.sizeBytes === sizeBytes) return memory;
  const out: Part[] = [];
  let left = sizeBytes;
  for (const part of memory) {
    if (left === 0) break;
    const taken = Math.min(left, part.sizeBytes);
    out.push({ address: part.address, sizeBytes: taken });
    left -= taken;
  }
  return out;
}
