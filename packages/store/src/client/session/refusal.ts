// Translates the master's error codes to failures, which keep the number.
import { Failure, type FailureName } from "@svc/contract/failures.ts";
import { codeName, codes } from "../../rpc/codes.ts";

const names: Readonly<Record<number, FailureName>> = {
  [codes.SEGMENT_NOT_FOUND]: "STORE_KEY_NOT_FOUND",
  [codes.SEGMENT_ALREADY_EXISTS]: "STORE_CONFLICT",
  [codes.NO_AVAILABLE_HANDLE]: "CAPACITY_EXHAUSTED",
  [codes.INVALID_KEY]: "INVALID_REQUEST",
  [codes.INVALID_PARAMS]: "INVALID_REQUEST",
  [codes.ILLEGAL_CLIENT]: "STORE_CONFLICT",
  [codes.REPLICA_IS_NOT_READY]: "STORE_CONFLICT",
  [codes.OBJECT_NOT_FOUND]: "STORE_KEY_NOT_FOUND",
  [codes.OBJECT_ALREADY_EXISTS]: "STORE_CONFLICT",
  [codes.OBJECT_HAS_LEASE]: "STORE_CONFLICT",
  [codes.OBJECT_HAS_REPLICATION_TASK]: "STORE_CONFLICT",
  [codes.REPLICA_NOT_FOUND]: "STORE_KEY_NOT_FOUND",
  [codes.UNAVAILABLE_IN_CURRENT_STATUS]: "SERVER_UNREACHABLE",
  [codes.UNAVAILABLE_IN_CURRENT_MODE]: "SERVER_UNREACHABLE",
  [codes.TASK_NOT_FOUND]: "STORE_KEY_NOT_FOUND",
  [codes.TASK_PENDING_LIMIT_EXCEEDED]: "TOO_MANY_REQUESTS",
  [codes.PERSISTENT_FAIL]: "DISK_FULL",
  [codes.TENANT_QUOTA_EXCEEDED]: "CAPACITY_EXHAUSTED",
  [codes.TENANT_NOT_REGISTERED]: "ACCESS_DENIED",
};

/** The cause of each refusal, and what to do. */
const sentences: Readonly<Record<number, string>> = {
  [codes.SEGMENT_NOT_FOUND]: "no segment of that name or id is mounted; svc store segments lists them",
  [codes.SEGMENT_ALREADY_EXISTS]: "memory at that place, or a segment of that id, is mounted already",
  [codes.CLIENT_NOT_FOUND]: "the master knows no such client; svc store clients lists them",
  [codes.NO_AVAILABLE_HANDLE]:
    "no segment that takes objects has room for it; svc store segments shows how full they are, and svc store undrain puts a drained one back into use",
  [codes.INVALID_KEY]: "the master does not take such a key",
  [codes.INVALID_PARAMS]: "the master does not take one of the arguments",
  [codes.ILLEGAL_CLIENT]: "it belongs to another client",
  [codes.REPLICA_IS_NOT_READY]: "it is still being written; try again once it is stored",
  [codes.OBJECT_NOT_FOUND]: "it is not there",
  [codes.OBJECT_ALREADY_EXISTS]: "it is there already",
  [codes.OBJECT_HAS_LEASE]: "a reader has a lease on it; try again once it has ended, or remove it by force",
  [codes.OBJECT_HAS_REPLICATION_TASK]: "it is being copied or moved; try again once that has ended",
  [codes.REPLICA_NOT_FOUND]: "it has no replica there; svc store replicas KEY lists them",
  [codes.UNAVAILABLE_IN_CURRENT_STATUS]: "the master takes no changes now; svc store leader says why",
  [codes.UNAVAILABLE_IN_CURRENT_MODE]: "a standby, or a master that is starting: name the leader, which svc store leader shows, or etcd://HOST:PORT",
  [codes.TASK_NOT_FOUND]: "the master knows no such task",
  [codes.TASK_PENDING_LIMIT_EXCEEDED]: "too many tasks have not ended yet; try again later",
  [codes.PERSISTENT_FAIL]: "the master's disk is full or fails, so it keeps no changes",
  [codes.TENANT_QUOTA_EXCEEDED]: "the tenant's quota is used up",
  [codes.TENANT_NOT_REGISTERED]: "the master knows no such tenant",
};

/** `details.storeCode` is the number. `what` begins the sentence: the operation and its object. */
export function refusal(code: number, what: string): Failure {
  return new Failure(names[code] ?? "STORE_REFUSED", `${what}: ${sentences[code] ?? "the store's master refused it"} (${codeName(code)}, ${code})`, {
    details: { storeCode: code },
  });
}
