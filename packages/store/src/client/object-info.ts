// The reports of a client: about objects, keys that it misses, and tasks.
import type { names } from "../rpc/native-names.ts";
import type { ReplicaList } from "../rpc/shapes.ts";

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

export const taskStatuses = ["pending", "processing", "failed", "succeeded"] as const;

export const infoOf = ({ replicas, checksum }: ReplicaList): ObjectInfo => {
  const [first] = replicas;
  const sizeBytes = first === undefined || first.place.type === "dfs" ? 0 : "buffer" in first.place ? first.place.buffer.sizeBytes : first.place.sizeBytes;
  return { sizeBytes: Number(sizeBytes), checksum, replicas: replicasOf(replicas), nofReplicas: replicasOf(replicas, "nof") };
};

export const replicasOf = (list: ReplicaList["replicas"], type: "memory" | "nof" = "memory"): Replica[] =>
  list.flatMap(({ place }) => {
    if (place.type !== type) return [];
    const { endpoint, address, sizeBytes, protocol } = place.buffer;
    return [{ endpoint, address, sizeBytes: Number(sizeBytes), protocol }];
  });
