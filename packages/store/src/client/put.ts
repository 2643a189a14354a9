// Stores objects: writes the bytes to memory leased ahead, then commits them in one call; failed writes are retried elsewhere, within a bound.
import { asFailure, Failure } from "@svc/contract/failures.ts";
import { codes } from "../rpc/codes.ts";
import type { ResultOf } from "../rpc/operations.ts";
import { isFileSegment } from "./disk/places.ts";
import { type Extents, giveBack, isLost, type LeasedExtent } from "./extents.ts";
import { call, type Flow, type Move, move, wait } from "./flow.ts";
import type { Part } from "./memory.ts";
import { nativeClient } from "./native.ts";
import type { Avoided, Places } from "./places.ts";
import { grouped, type PutPolicy } from "./put-policy.ts";
import { refusal } from "./session/refusal.ts";
import { type FilesParts, storeFiles, wordsOf } from "./store-files.ts";

//  take extent ──> write ──> commit ──ok──> stored
//      ^   ^         |          |──exists──> the key existed (the next put uses the extent)
//      |   └─failed──┘          |──the lease is over, its holder is gone──┐
//      └────────────────────────────────────────────────────────────────<┘

export type PutItem = { readonly key: string; readonly parts: readonly Part[]; readonly sizeBytes: number };
/** True if the object was stored, false if the key existed already. */
export type PutOutcome = boolean | Failure;

export type PutParts = {
  readonly clientID: string;
  readonly tenant: string;
  readonly fingerprint: string;
  readonly extents: Extents;
  readonly places: Places;
  readonly avoided: Avoided;
  readonly timeoutMs: number;
  onFailedMove(endpoint: string): void;
  readonly files: FilesParts;
};

/** `isUnsure`: an earlier commit of the same object had no answer. */
export type PutRequest = { readonly policy: PutPolicy; readonly group: string | undefined; readonly isReplacing: boolean; readonly isUnsure: boolean };

/** A holder that responds at all accepts the first bytes within this time; a stopped one is replaced by another. */
const FIRST_TRY_MS = 1000;
const LATER_TRY_MS = 4000;
/** The throughput that every path is assumed to reach, in bytes per millisecond. */
const BYTES_PER_MS = 50_000;
const FILE_BYTES_PER_MS = 20_000;
const AVOID_MS = 2000;
const RETRY_MS = 20;
/** The key exists with another fingerprint, or its object is incomplete; neither can result from our commit. */
const NOT_OURS: readonly unknown[] = [codes.OBJECT_NOT_FOUND, codes.REPLICA_IS_NOT_READY];
const PASSING: readonly string[] = ["SERVER_UNREACHABLE", "TIMED_OUT", "CAPACITY_EXHAUSTED"];
/** A store that has no memory for this long is full; before, a holder may still be mounting its memory at a new leader. */
const FULL_MS = 1000;

type Pending = {
  readonly index: number;
  readonly item: PutItem;
  readonly checksum: bigint;
  extent: LeasedExtent | undefined;
  /** The object's bytes have been written to the extent. */
  isWritten: boolean;
  /** An earlier commit had no answer, so this client may have stored the object already. */
  isUnsure: boolean;
};

/** An object whose earlier commit may or may not have been executed; `isThere`: the key exists. */
type Unsure = { readonly pending: Pending; readonly isThere: boolean };

export function* putAll(parts: PutParts, items: readonly PutItem[], request: PutRequest): Flow<PutOutcome[]> {
  const outcomes: PutOutcome[] = new Array(items.length);
  let endMs = performance.now() + parts.timeoutMs;
  let hasStalled = false;
  let shortSinceMs: number | undefined;
  let left: Pending[] = [];
  items.forEach((item, index) => {
    const wrong = refused(item);
    if (wrong !== undefined) outcomes[index] = wrong;
    else left.push({ index, item, checksum: checksumOf(item.parts), extent: undefined, isWritten: false, isUnsure: request.isUnsure });
  });
  for (let attempt = 0; left.length > 0; attempt++) {
    let failure: Failure | undefined;
    let isUndecided = false;
    const begunMs = performance.now();
    try {
      const ready = yield* withExtents(parts, left, request);
      const written = yield* write(parts, ready, attempt);
      const unsure = yield* commitAll(parts, written, request, outcomes);
      const stored = written.filter(({ index }) => outcomes[index] === true);
      yield* storeFiles(
        parts.files,
        stored.map(({ item, checksum }) => ({ ...item, checksum })),
      );
      yield* resolveUnsure(parts, unsure, outcomes);
      isUndecided = unsure.some(({ pending }) => outcomes[pending.index] === undefined);
    } catch (error) {
      failure = asFailure(error);
      // A master that could not be reached has a successor, where holders first mount their memory again.
      if (failure.name === "CAPACITY_EXHAUSTED") shortSinceMs ??= begunMs;
      else shortSinceMs = Number.POSITIVE_INFINITY;
      if (!PASSING.includes(failure.name) || performance.now() - shortSinceMs > FULL_MS) {
        yield* abandon(parts, left);
        for (const { index } of left) outcomes[index] ??= failure;
        return outcomes;
      }
      parts.avoided.clear();
    }
    left = left.filter(({ index }) => outcomes[index] === undefined);
    if (left.length === 0) break;
    // A single round took the whole time limit, so this process was suspended. It
    // gets the full time once more, to mount its memory again and to continue.
    if (!hasStalled && performance.now() - begunMs > parts.timeoutMs) {
      hasStalled = true;
      endMs = performance.now() + parts.timeoutMs;
    }
    if (performance.now() > endMs) {
      yield* abandon(parts, left);
      failure ??= new Failure("TIMED_OUT", `not stored within ${parts.timeoutMs} ms: no holder could be reached`, { details: { storeCode: -800 } });
      for (const { index } of left) outcomes[index] = failure;
      return outcomes;
    }
    if (failure !== undefined || isUndecided) yield* wait(RETRY_MS);
  }
  return outcomes;
}

function refused({ key, sizeBytes }: PutItem): Failure | undefined {
  if (key !== "" && sizeBytes > 0) return undefined;
  return new Failure("INVALID_REQUEST", key === "" ? "the key is empty" : `key ${key}: expected a value of at least one byte`, {
    details: { storeCode: codes.INVALID_PARAMS },
  });
}

/**
 * Returns those of `left` that got memory; the others follow in the next round. An object that does not
 * fit does not keep back the others of its batch.
 * @throws the master's refusal where none got memory.
 */
function* withExtents({ extents, avoided }: PutParts, left: readonly Pending[], { policy }: PutRequest): Flow<Pending[]> {
  const bySize = new Map<number, Pending[]>();
  for (const pending of left) {
    if (pending.extent !== undefined) continue;
    const same = bySize.get(pending.item.sizeBytes);
    if (same === undefined) bySize.set(pending.item.sizeBytes, [pending]);
    else same.push(pending);
  }
  let shortage: Failure | undefined;
  for (const [sizeBytes, same] of bySize) {
    try {
      const taken = yield* extents.take(sizeBytes, policy, same.length, avoided.list());
      taken.forEach((extent, at) => {
        (same[at] as Pending).extent = extent;
      });
    } catch (error) {
      shortage = asFailure(error);
      if (shortage.name !== "CAPACITY_EXHAUSTED") throw shortage;
    }
  }
  const ready = left.filter(({ extent }) => extent !== undefined);
  if (shortage !== undefined && ready.length === 0) throw shortage;
  return ready;
}

/** Returns those whose bytes have reached all their holders. */
function* write(parts: PutParts, ready: readonly Pending[], attempt: number): Flow<Pending[]> {
  const unwritten = ready.filter(({ isWritten }) => !isWritten);
  if (unwritten.length === 0) return [...ready];
  const { moves, bytes } = movesOf(unwritten);
  const rate = moves.some(({ endpoint }) => isFileSegment(endpoint)) ? FILE_BYTES_PER_MS : BYTES_PER_MS;
  const failed = yield* move("WRITE", moves, (attempt === 0 ? FIRST_TRY_MS : LATER_TRY_MS) + Math.ceil(bytes / rate));
  const isFailed = ({ extent }: Pending) => failed.size > 0 && (extent as LeasedExtent).ranges.some(({ endpoint }) => failed.has(endpoint));
  for (const pending of unwritten) pending.isWritten = !isFailed(pending);
  if (failed.size === 0) return [...ready];
  for (const endpoint of failed.keys()) {
    parts.avoided.add(endpoint, AVOID_MS);
    parts.places.forgetHolder(endpoint);
    parts.onFailedMove(endpoint);
  }
  const lost = unwritten.filter(({ isWritten }) => !isWritten);
  yield* giveBack(
    parts.clientID,
    lost.map(({ extent }) => extent as LeasedExtent),
    true,
  );
  for (const pending of lost) pending.extent = undefined;
  // These extents were not written and will not be, so the master may reuse them at once.
  for (const endpoint of failed.keys()) yield* giveBack(parts.clientID, parts.extents.takeOf(endpoint), false);
  return ready.filter(({ extent }) => extent !== undefined);
}

function movesOf(list: readonly Pending[]): { moves: Move[]; bytes: number } {
  const words = new Map<string, bigint[]>();
  let bytes = 0;
  for (const { item, extent } of list) {
    bytes += item.sizeBytes;
    for (const { endpoint, address } of (extent as LeasedExtent).ranges) {
      let to = address;
      const into = words.get(endpoint) ?? [];
      words.set(endpoint, into);
      for (const part of item.parts) {
        const length = BigInt(part.sizeBytes);
        into.push(part.address, to, length);
        to += length;
      }
    }
  }
  return { moves: [...words].map(([endpoint, each]) => ({ endpoint, words: BigUint64Array.from(each) })), bytes };
}

function* commitAll(parts: PutParts, written: readonly Pending[], { policy, group, isReplacing }: PutRequest, outcomes: PutOutcome[]): Flow<Unsure[]> {
  if (written.length === 0) return [];
  const commits = written.map(({ item, extent, checksum }) => ({ extent: (extent as LeasedExtent).id, key: item.key, checksum }));
  let answers: ResultOf<"CommitPuts">;
  try {
    answers = yield* call("CommitPuts", parts.clientID, commits, grouped(policy, group, commits.length), parts.fingerprint, isReplacing, parts.tenant);
  } catch (error) {
    for (const pending of written) pending.isUnsure = true;
    throw error;
  }
  const unsure: Unsure[] = [];
  let hasLost = false;
  written.forEach((pending, at) => {
    const answer = answers[at];
    const extent = pending.extent as LeasedExtent;
    if (answer?.ok === true) {
      outcomes[pending.index] = true;
      parts.places.forget(pending.item.key);
      return;
    }
    pending.extent = undefined;
    pending.isWritten = false;
    if (answer === undefined) return;
    const isThere = answer.code === codes.OBJECT_ALREADY_EXISTS;
    if (pending.isUnsure && (isThere || isLost(answer.code))) unsure.push({ pending, isThere });
    hasLost ||= isLost(answer.code);
    if (isLost(answer.code)) return;
    parts.extents.putBack(pending.item.sizeBytes, policy, extent);
    if (!isThere) outcomes[pending.index] = refusal(answer.code, `storing key ${pending.item.key}`);
    else if (!pending.isUnsure) outcomes[pending.index] = false;
  });
  // An extent that a former leader leased is lost, and so are all others from it; each would cost a put another round.
  if (hasLost) yield* giveBack(parts.clientID, parts.extents.takeAll(), false);
  return unsure;
}

/**
 * Resolves commits with unknown outcome: with our checksum the object is stored;
 * with another checksum the key existed; if it is absent, the put is retried.
 */
function* resolveUnsure(parts: PutParts, unsure: readonly Unsure[], outcomes: PutOutcome[]): Flow<void> {
  if (unsure.length === 0) return;
  const keys = unsure.map(({ pending }) => pending.item.key);
  const found = yield* call("ReadObjects", keys, parts.fingerprint, parts.tenant);
  unsure.forEach(({ pending, isThere }, at) => {
    const answer = found[at];
    if (answer?.ok === true && answer.value.checksum === pending.checksum) outcomes[pending.index] = true;
    else if (isThere && (answer?.ok === true || NOT_OURS.includes(answer?.code))) outcomes[pending.index] = false;
  });
  for (const key of keys) parts.places.forget(key);
}

/** Returns the extents as possibly written, so that they are not reused until no late byte can arrive. */
function* abandon({ clientID }: PutParts, left: readonly Pending[]): Flow<void> {
  yield* giveBack(
    clientID,
    left.flatMap(({ extent }) => extent ?? []),
    true,
  );
  for (const pending of left) pending.extent = undefined;
}

export function checksumOf(parts: readonly Part[]): bigint {
  return nativeClient().checksum(wordsOf(parts), 0, parts.length);
}
