// Keys, replicas and tasks: the part of the client that calls the master and moves no bytes.
import type { Failure } from "@svc/contract/failures.ts";
import { codes } from "../rpc/codes.ts";
import { names } from "../rpc/native-names.ts";
import type { Expected } from "../rpc/schema.ts";
import type { ReplicaList } from "../rpc/shapes.ts";
import { fromWire, toWire } from "../rpc/text.ts";
import { ClientBytes } from "./client-bytes.ts";
import type { BytesParts } from "./parts.ts";
import { refusal } from "./session/refusal.ts";
import type { Session } from "./session/session.ts";

export type Replica = { readonly endpoint: string; readonly address: bigint; readonly sizeBytes: number; readonly protocol: string };

export type ObjectInfo = {
  readonly sizeBytes: number;
  /** XXH3 of the bytes; undefined if the writer gave none. */
  readonly checksum: bigint | undefined;
  /** Replicas in memory. */
  readonly replicas: readonly Replica[];
  readonly nofReplicas: readonly Replica[];
};

export type Miss = {
  /**
   * stored: the key is readable now. checksum: the only bytes are damaged. holder_away: the master knows the key, but no holder answers now;
   * it may become readable again. holder_lost: no client has it any more. never_stored: the key does not
   * occur in all that the master remembers. unknown: the master's memory does not reach back far enough.
   */
  readonly reason: (typeof names.missReasons)[number];
  /** The time of removal, where it is known. */
  readonly at: Date | undefined;
};

export type TaskState = {
  readonly status: "pending" | "processing" | "failed" | "succeeded";
  readonly message: string;
  readonly createdAt: Date;
  readonly updatedAt: Date;
};

const taskStatuses = ["pending", "processing", "failed", "succeeded"] as const;

export class ClientKeys extends ClientBytes {
  /** The client's membership: mounts, and RPC calls for which the client has no method. */
  readonly session: Session;
  readonly #tenant: string;

  constructor(parts: BytesParts, session: Session, tenant: string) {
    super(parts);
    this.session = session;
    this.#tenant = tenant;
  }

  /** Reports whether the key can be read now; if so, takes a lease on it as a read would. */
  async exists(key: string): Promise<boolean> {
    return (await this.existsBatch([key]))[0] as boolean;
  }
  async existsBatch(keys: readonly string[]): Promise<boolean[]> {
    const answers = await this.session.call(
      "BatchExistKey",
      keys.map((key) => this.wireKey(key)),
      this.#tenant,
    );
    return keys.map((key, at) => answered(answers[at], `asking for key ${key}`));
  }

  /** Returns undefined if the key does not exist or has another layout fingerprint than this client's. */
  async stat(key: string): Promise<ObjectInfo | undefined> {
    const [answer] = await this.session.call("ReadObjects", [this.wireKey(key)], this.parts.getParts.fingerprint, this.#tenant);
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
    const answer = await this.session.call("FindRoute", this.wireKey(key), this.#tenant);
    if (!answer.ok && answer.code === codes.OBJECT_NOT_FOUND) return [];
    return answered(answer, `looking for the replicas of key ${key}`).replicas.map(({ segment }) => fromWire(segment));
  }
  /** Returns the replicas of every key that matches a regular expression, without leases. @throws INVALID_REQUEST for an invalid pattern. */
  async replicasMatching(pattern: string): Promise<ReadonlyMap<string, readonly Replica[]>> {
    const found = answered(await this.session.call("GetReplicaListByRegex", this.parts.scope + toWire(pattern), this.#tenant), `listing keys by ${pattern}`);
    return new Map([...found].map(([key, replicas]) => [fromWire(key.slice(this.parts.scope.length)), replicasOf(replicas)]));
  }

  /** Returns why a missed key does not exist, as far as the master remembers. */
  async whyMissing(key: string): Promise<Miss> {
    const damagedAtMs = this.parts.damaged.find(this.wireKey(key));
    if (damagedAtMs !== undefined) return { reason: "checksum", at: new Date(damagedAtMs) };
    const [miss] = await this.session.call("WhyMissing", [this.wireKey(key)], this.parts.getParts.fingerprint, this.#tenant);
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
    const names = keys.map((key) => this.wireKey(key));
    for (const name of names) this.parts.getParts.places.forget(name);
    const answers = await this.session.call("BatchRemove", names, isForced, this.#tenant);
    return keys.map((key, at) => {
      const answer = answers[at];
      return answer?.ok === true ? undefined : refusal(answer?.code ?? codes.INTERNAL_ERROR, `removing key ${key}`);
    });
  }
  /** Returns the number of matching keys that were removed. @throws INVALID_REQUEST for an invalid pattern. */
  async removeMatching(pattern: string, isForced = false): Promise<number> {
    this.parts.getParts.places.clear();
    return Number(
      answered(await this.session.call("RemoveByRegex", this.parts.scope + toWire(pattern), isForced, this.#tenant), `removing keys by ${pattern}`),
    );
  }
  /** Returns the number of removed objects; leased ones stay unless forced. */
  async removeAll(isForced = false): Promise<number> {
    this.parts.getParts.places.clear();
    const removed = Number(await this.session.call("RemoveAll", isForced, this.#tenant));
    if (removed < 0) throw refusal(removed, "removing all keys");
    return removed;
  }

  /**
   * Asks for a replica in each of the segments, made by the client that holds the object. Returns the task's id.
   * @throws INVALID_REQUEST, STORE_KEY_NOT_FOUND.
   */
  async createCopyTask(key: string, targets: readonly string[]): Promise<string> {
    return answered(await this.session.call("CreateCopyTask", this.wireKey(key), this.#tenant, targets), `copying key ${key}`);
  }
  /** Asks to move the replica in one segment to another. Returns the task's id. */
  async createMoveTask(key: string, source: string, target: string): Promise<string> {
    return answered(await this.session.call("CreateMoveTask", this.wireKey(key), this.#tenant, source, target), `moving key ${key}`);
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
}

function answered<T>(answer: Expected<T> | undefined, what: string): T {
  if (answer?.ok === true) return answer.value;
  throw refusal(answer?.code ?? codes.INTERNAL_ERROR, what);
}

const infoOf = ({ replicas, checksum }: ReplicaList): ObjectInfo => {
  const [first] = replicas;
  const sizeBytes = first === undefined || first.place.type === "dfs" ? 0 : "buffer" in first.place ? first.place.buffer.sizeBytes : first.place.sizeBytes;
  return { sizeBytes: Number(sizeBytes), checksum, replicas: replicasOf(replicas), nofReplicas: replicasOf(replicas, "nof") };
};

const replicasOf = (list: ReplicaList["replicas"], type: "memory" | "nof" = "memory"): Replica[] =>
  list.flatMap(({ place }) => {
    if (place.type !== type) return [];
    const { endpoint, address, sizeBytes, protocol } = place.buffer;
    return [{ endpoint, address, sizeBytes: Number(sizeBytes), protocol }];
  });
