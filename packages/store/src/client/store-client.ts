// The client of the cache store: stores and reads objects in the memory of all holders, and offers memory of its own.
// Longer than 300 lines: one class has every operation that a user calls, many in two forms; open-client.ts builds its parts.
import { setTimeout as sleep } from "node:timers/promises";
import { Failure } from "@svc/contract/failures.ts";
import { asView, type Memory } from "@svc/transfer/memory.ts";
import { codes } from "../rpc/codes.ts";
import { names } from "../rpc/native-names.ts";
import type { Expected } from "../rpc/schema.ts";
import { scopedKey } from "../rpc/scope.ts";
import { fromWire, toWire } from "../rpc/text.ts";
import type { ClientOptions } from "./client-options.ts";
import type { DiskState } from "./disk/disk-parts.ts";
import { giveBack } from "./extents.ts";
import { FastPath } from "./fast-path.ts";
import type { Flow } from "./flow.ts";
import { type Destination, type GetOutcome, getAll } from "./get.ts";
import type { Lent } from "./memory.ts";
import { infoOf, type Miss, type ObjectInfo, type Replica, replicasOf, type TaskState, taskStatuses } from "./object-info.ts";
import { openClientParts } from "./open-client.ts";
import type { ClientParts } from "./parts.ts";
import { type PutOutcome, putAll } from "./put.ts";
import { type PutOptions, type PutPolicy, putPolicyOf } from "./put-policy.ts";
import { refusal } from "./session/refusal.ts";
import type { MountOptions } from "./session/segments.ts";
import type { Session } from "./session/session.ts";

const TEND_MS = 1000;
const NONE: PutOptions = {};

/** One piece of memory, or several whose bytes are concatenated. */
export type Pieces = Memory | readonly Memory[];
export type PutEntry = { readonly key: string; readonly value: Pieces };
export type GetEntry = { readonly key: string; readonly into: Pieces };
/** The bytes that were read; undefined for a miss; a Failure where the read failed. */
export type GetResult = Buffer | undefined | Failure;

/**
 * Values are immutable: `put` of an existing key changes nothing and returns false; `upsert` replaces the value. Failures carry the store's number in
 * `details.storeCode`: CAPACITY_EXHAUSTED (no capacity, or a quota), STORE_CONFLICT (leased, being copied), INVALID_REQUEST, SERVER_UNREACHABLE,
 * TIMED_OUT. Batches return one outcome for each entry and never throw for an entry. Registered memory is transferred without a copy. The synchronous
 * forms block the thread and are the fastest for sequential calls.
 */
export class StoreClient implements AsyncDisposable {
  readonly #parts: ClientParts;
  readonly #fastPath: FastPath;
  readonly #plain: PutPolicy;
  readonly #timer: NodeJS.Timeout;
  #closing: Promise<void> | undefined;

  /** @throws SERVER_UNREACHABLE, HOST_UNSUITABLE (another version, no native part), UNAUTHENTICATED, INVALID_REQUEST, TRANSPORT_UNAVAILABLE. */
  static async open(options: ClientOptions): Promise<StoreClient> {
    return new StoreClient(await openClientParts(options));
  }

  private constructor(parts: ClientParts) {
    this.#parts = parts;
    this.#fastPath = new FastPath(parts);
    this.#plain = putPolicyOf({}, parts.hostID);
    this.#timer = setInterval(() => void this.#tend(), TEND_MS).unref();
  }

  /** The client's membership: mounts, and RPC calls for which the client has no method. */
  get session(): Session {
    return this.#parts.session;
  }
  get clientID(): string {
    return this.session.clientID;
  }
  /** The name of this client's segments. */
  get segmentName(): string {
    return this.#parts.engine.getServerName();
  }
  /** Returns the metrics of its transfer engine as Prometheus text. */
  transferMetrics(): string {
    return this.#parts.engine.metrics();
  }
  /** The port of its own HTTP endpoint. */
  get httpPort(): number | undefined {
    return this.#parts.http?.port;
  }

  /**
   * Registers memory, which is then transferred without a copy until it is unregistered; it must not be resized or detached.
   * @throws MEMORY_OVERLAPS, INVALID_REQUEST.
   */
  registerBuffer(memory: Memory): Promise<void> {
    return this.#parts.memory.register(memory);
  }
  /** @throws MEMORY_NOT_REGISTERED; TRANSFER_BUSY while a transfer uses it. */
  unregisterBuffer(memory: Memory): Promise<void> {
    return this.#parts.memory.unregister(memory);
  }

  /** Offers memory to the cluster. Returns the ids of its segments. */
  async mount(sizeBytes: number, options: MountOptions = {}): Promise<string[]> {
    return (await this.session.mountNew(sizeBytes, options)).map(({ segment }) => segment.id);
  }
  /** Unmounts a segment; with a grace period its objects stay readable until then. @throws STORE_KEY_NOT_FOUND, SERVER_UNREACHABLE. */
  unmount(segmentID: string, graceMs = 0): Promise<void> {
    return this.session.unmount(segmentID, graceMs);
  }

  /** The name of this client's NOF segment for `preferredNofSegments`; undefined where it has none. */
  get nofSegment(): string | undefined {
    return this.#parts.nof?.segmentName;
  }

  /** The state of this client's own disk; undefined where it has none. */
  get disk(): DiskState | undefined {
    return this.#parts.disk?.state;
  }
  /**
   * Unmounts this client's disk for good: the master no longer names it, so readers miss at once, and running reads have `graceMs` to end. Its files
   * stay for the next process that opens the folder. Does nothing without a disk.
   */
  async unmountDisk(graceMs = 0): Promise<void> {
    if (this.#parts.disk === undefined) return;
    await this.#parts.disk.stop();
    if (graceMs > 0) await sleep(graceMs);
  }

  /** Returns true if the value was stored, and false if the key existed already. */
  async put(key: string, value: Pieces, options: PutOptions = {}): Promise<boolean> {
    return first(await this.putBatch([{ key, value }], options));
  }
  putSync(key: string, value: Pieces, options: PutOptions = NONE): boolean {
    const isPlain = !Array.isArray(value) && options.group === undefined;
    const done = isPlain
      ? this.#fastPath.put(this.#wireKey(key), value as Memory, options === NONE ? this.#plain : putPolicyOf(options, this.#parts.hostID))
      : undefined;
    if (typeof done === "boolean") return done;
    return first(this.#parts.runner.runSync(this.#put([{ key, value }], options, false, done === "unsure")));
  }
  putBatch(entries: readonly PutEntry[], options: PutOptions = {}): Promise<PutOutcome[]> {
    return this.#parts.runner.run(this.#put(entries, options, false));
  }
  putBatchSync(entries: readonly PutEntry[], options: PutOptions = {}): PutOutcome[] {
    return this.#parts.runner.runSync(this.#put(entries, options, false));
  }

  /** Stores the bytes whether or not the key exists. Readers that know the old location may read the old bytes until their lease ends. */
  async upsert(key: string, value: Pieces, options: PutOptions = {}): Promise<void> {
    first(await this.upsertBatch([{ key, value }], options));
  }
  upsertSync(key: string, value: Pieces, options: PutOptions = {}): void {
    first(this.#parts.runner.runSync(this.#put([{ key, value }], options, true)));
  }
  upsertBatch(entries: readonly PutEntry[], options: PutOptions = {}): Promise<PutOutcome[]> {
    return this.#parts.runner.run(this.#put(entries, options, true));
  }

  /** Returns a copy of the bytes; undefined for a miss. */
  async get(key: string): Promise<Buffer | undefined> {
    return first(await this.getBatch([key]));
  }
  getSync(key: string): Buffer | undefined {
    return first(this.getBatchSync([key]));
  }
  getBatch(keys: readonly string[]): Promise<GetResult[]> {
    return this.#parts.runner.run(this.#get(keys));
  }
  getBatchSync(keys: readonly string[]): GetResult[] {
    return this.#parts.runner.runSync(this.#get(keys));
  }

  /** Reads into the caller's memory. Returns the number of bytes; undefined for a miss. @throws INVALID_REQUEST when the value does not fit. */
  async getInto(key: string, into: Pieces): Promise<number | undefined> {
    return first(await this.getIntoBatch([{ key, into }]));
  }
  getIntoSync(key: string, into: Pieces): number | undefined {
    const read = Array.isArray(into) ? undefined : this.#fastPath.read(this.#wireKey(key), into as Memory);
    return read ?? first(this.getIntoBatchSync([{ key, into }]));
  }
  getIntoBatch(entries: readonly GetEntry[]): Promise<GetOutcome[]> {
    return this.#parts.runner.run(this.#getInto(entries));
  }
  getIntoBatchSync(entries: readonly GetEntry[]): GetOutcome[] {
    return this.#parts.runner.runSync(this.#getInto(entries));
  }

  *#put(entries: readonly PutEntry[], options: PutOptions, isReplacing: boolean, isUnsure = false): Flow<PutOutcome[]> {
    const { memory, putParts, hostID, metrics } = this.#parts;
    const lent: Lent[] = [];
    try {
      const items = entries.map(({ key, value }) => {
        const pieces = piecesOf(value);
        const each = memory.forReading(pieces);
        lent.push(each);
        return { key: this.#wireKey(key), parts: each.parts, sizeBytes: each.parts.reduce((sum, part) => sum + part.sizeBytes, 0) };
      });
      const request = { policy: putPolicyOf(options, hostID), group: options.group === undefined ? undefined : toWire(options.group), isReplacing, isUnsure };
      const outcomes = yield* putAll(putParts, items, request);
      metrics.put(items, outcomes);
      return outcomes;
    } finally {
      for (const each of lent) each.end(true);
    }
  }

  *#getInto(entries: readonly GetEntry[]): Flow<GetOutcome[]> {
    const { memory, getParts, metrics } = this.#parts;
    const lent = new Map<number, Lent>();
    let outcomes: GetOutcome[] | undefined;
    try {
      const wanted = entries.map(({ key, into }, index): Destination => {
        const pieces = piecesOf(into);
        const givenBytes = pieces.reduce((sum, piece) => sum + asView(piece).byteLength, 0);
        return {
          key: this.#wireKey(key),
          memoryFor(sizeBytes) {
            if (sizeBytes > givenBytes) return undefined;
            const each = lent.get(index) ?? memory.forWriting(pieces);
            lent.set(index, each);
            return each.parts;
          },
        };
      });
      outcomes = yield* getAll(getParts, wanted);
      metrics.got(outcomes);
      return outcomes;
    } finally {
      for (const [index, each] of lent) each.end(typeof outcomes?.[index] === "number");
    }
  }

  *#get(keys: readonly string[]): Flow<GetResult[]> {
    const { memory, getParts, metrics } = this.#parts;
    const found = new Map<number, { readonly bytes: Buffer; readonly lent: Lent }>();
    let outcomes: GetOutcome[] | undefined;
    try {
      const wanted = keys.map(
        (key, index): Destination => ({
          key: this.#wireKey(key),
          memoryFor(sizeBytes) {
            const known = found.get(index);
            if (known?.bytes.length === sizeBytes) return known.lent.parts;
            known?.lent.end(false);
            const bytes = Buffer.allocUnsafeSlow(sizeBytes);
            const lent = memory.forWriting([bytes]);
            found.set(index, { bytes, lent });
            return lent.parts;
          },
        }),
      );
      outcomes = yield* getAll(getParts, wanted);
      metrics.got(outcomes);
    } finally {
      for (const [index, { lent }] of found) lent.end(typeof outcomes?.[index] === "number");
    }
    return (outcomes ?? []).map((outcome, index) => (typeof outcome === "number" ? found.get(index)?.bytes : outcome));
  }

  /** Returns the key with its domain and object set, as the master knows it. */
  #wireKey(key: string): string {
    return scopedKey(this.#parts.scope, toWire(key));
  }

  /** Reports whether the key can be read now; if so, takes a lease on it as a read would. */
  async exists(key: string): Promise<boolean> {
    return (await this.existsBatch([key]))[0] as boolean;
  }
  async existsBatch(keys: readonly string[]): Promise<boolean[]> {
    const answers = await this.session.call(
      "BatchExistKey",
      keys.map((key) => this.#wireKey(key)),
      this.#parts.tenant,
    );
    return keys.map((key, at) => answered(answers[at], `asking for key ${key}`));
  }

  /** Returns undefined if the key does not exist or has another layout fingerprint than this client's. */
  async stat(key: string): Promise<ObjectInfo | undefined> {
    const [answer] = await this.session.call("ReadObjects", [this.#wireKey(key)], this.#parts.getParts.fingerprint, this.#parts.tenant);
    if (answer?.ok === true) return infoOf(answer.value);
    if (answer?.code === codes.OBJECT_NOT_FOUND || answer?.code === codes.REPLICA_IS_NOT_READY) return undefined;
    throw refusal(answer?.code ?? codes.INTERNAL_ERROR, `looking at key ${key}`);
  }
  /** Returns the size in bytes; undefined if the key does not exist. */
  async size(key: string): Promise<number | undefined> {
    return (await this.stat(key))?.sizeBytes;
  }
  /** Returns the replicas in memory; empty if there are none. */
  async replicas(key: string): Promise<readonly Replica[]> {
    return (await this.stat(key))?.replicas ?? [];
  }
  /**
   * Returns the segments with a replica, in memory and on disks, readable or not, without a lease; empty if the key does not exist.
   * @throws INVALID_REQUEST where the master is another implementation.
   */
  async holders(key: string): Promise<readonly string[]> {
    const answer = await this.session.call("FindRoute", this.#wireKey(key), this.#parts.tenant);
    if (!answer.ok && answer.code === codes.OBJECT_NOT_FOUND) return [];
    return answered(answer, `looking for the replicas of key ${key}`).replicas.map(({ segment }) => fromWire(segment));
  }
  /** Returns the replicas of every key that matches a regular expression, without leases. @throws INVALID_REQUEST for an invalid pattern. */
  async replicasMatching(pattern: string): Promise<ReadonlyMap<string, readonly Replica[]>> {
    const found = answered(
      await this.session.call("GetReplicaListByRegex", this.#parts.scope + toWire(pattern), this.#parts.tenant),
      `listing keys by ${pattern}`,
    );
    return new Map([...found].map(([key, replicas]) => [fromWire(key.slice(this.#parts.scope.length)), replicasOf(replicas)]));
  }

  /** Returns why a missed key does not exist, as far as the master remembers. */
  async whyMissing(key: string): Promise<Miss> {
    const damagedAtMs = this.#parts.damaged.find(this.#wireKey(key));
    if (damagedAtMs !== undefined) return { reason: "checksum", at: new Date(damagedAtMs) };
    const [miss] = await this.session.call("WhyMissing", [this.#wireKey(key)], this.#parts.getParts.fingerprint, this.#parts.tenant);
    const atMs = Number(miss?.atMs ?? 0n);
    return { reason: names.missReasons[miss?.reason ?? 0] ?? "unknown", at: atMs === 0 ? undefined : new Date(atMs) };
  }

  /**
   * @param isForced removes even while readers have a lease; those that know its location may read it until their lease ends.
   * @throws STORE_KEY_NOT_FOUND, STORE_CONFLICT (leased, being written, being copied).
   */
  async remove(key: string, isForced = false): Promise<void> {
    const [failure] = await this.removeBatch([key], isForced);
    if (failure !== undefined) throw failure;
  }
  /** Returns a failure for each key that was not removed, and undefined for each that was. */
  async removeBatch(keys: readonly string[], isForced = false): Promise<(Failure | undefined)[]> {
    const names = keys.map((key) => this.#wireKey(key));
    for (const name of names) this.#parts.getParts.places.forget(name);
    const answers = await this.session.call("BatchRemove", names, isForced, this.#parts.tenant);
    return keys.map((key, at) => {
      const answer = answers[at];
      return answer?.ok === true ? undefined : refusal(answer?.code ?? codes.INTERNAL_ERROR, `removing key ${key}`);
    });
  }
  /** Returns the number of matching keys that were removed. @throws INVALID_REQUEST for an invalid pattern. */
  async removeMatching(pattern: string, isForced = false): Promise<number> {
    this.#parts.getParts.places.clear();
    return Number(
      answered(await this.session.call("RemoveByRegex", this.#parts.scope + toWire(pattern), isForced, this.#parts.tenant), `removing keys by ${pattern}`),
    );
  }
  /** Returns the number of removed objects; leased ones stay unless forced. */
  async removeAll(isForced = false): Promise<number> {
    this.#parts.getParts.places.clear();
    const removed = Number(await this.session.call("RemoveAll", isForced, this.#parts.tenant));
    if (removed < 0) throw refusal(removed, "removing all keys");
    return removed;
  }

  /**
   * Asks for a replica in each of the segments, made by the client that holds the object. Returns the task's id.
   * @throws INVALID_REQUEST, STORE_KEY_NOT_FOUND.
   */
  async createCopyTask(key: string, targets: readonly string[]): Promise<string> {
    return answered(await this.session.call("CreateCopyTask", this.#wireKey(key), this.#parts.tenant, targets), `copying key ${key}`);
  }
  /** Asks to move the replica in one segment to another. Returns the task's id. */
  async createMoveTask(key: string, source: string, target: string): Promise<string> {
    return answered(await this.session.call("CreateMoveTask", this.#wireKey(key), this.#parts.tenant, source, target), `moving key ${key}`);
  }
  /** @throws STORE_KEY_NOT_FOUND for a task that the master no longer knows. */
  async task(id: string): Promise<TaskState> {
    const { status, message, createdMs, updatedMs } = answered(await this.session.call("QueryTask", id), `task ${id}`);
    return {
      status: taskStatuses[status] ?? "failed",
      message: fromWire(message),
      createdAt: new Date(Number(createdMs)),
      updatedAt: new Date(Number(updatedMs)),
    };
  }

  /** Returns true if the master knows this client and answers. */
  async health(): Promise<boolean> {
    if (!this.session.isJoined) return false;
    return this.session.call("ServiceReady").then(
      (answer) => answer.ok,
      () => false,
    );
  }

  /** Returns leased extents and unmounts its memory: objects there are gone unless they have replicas elsewhere. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(): Promise<void> {
    clearInterval(this.#timer);
    await this.#parts.http?.close();
    await this.#parts.disk?.close();
    await this.#parts.cold?.close();
    await this.#parts.runner.run(giveBack(this.clientID, this.#parts.extents.takeAll(), false));
    await this.session.close();
    await this.#parts.nof?.close();
    this.#parts.syncCalls.close();
    this.#parts.runner.shared?.close();
    await this.#parts.memory.close();
    await this.#parts.engine.freeEngine();
  }

  /** Returns extents that were not needed before their lease ends. */
  async #tend(): Promise<void> {
    await this.#parts.runner.run(giveBack(this.clientID, this.#parts.extents.takeOld(), false));
  }
}

function answered<T>(answer: Expected<T> | undefined, what: string): T {
  if (answer?.ok === true) return answer.value;
  throw refusal(answer?.code ?? codes.INTERNAL_ERROR, what);
}

function first<T>(outcomes: readonly T[]): Exclude<T, Failure> {
  const outcome = outcomes[0] as T;
  if (outcome instanceof Failure) throw outcome;
  return outcome as Exclude<T, Failure>;
}

const piecesOf = (pieces: Pieces): readonly Memory[] => (Array.isArray(pieces) ? pieces : [pieces as Memory]);
