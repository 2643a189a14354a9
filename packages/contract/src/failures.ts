// The one table of failures: each row has the HTTP status, the Connect code and the store's error code of a failure.

/** Connect status codes, by their wire names. */
export type ConnectCode =
  | "canceled"
  | "unknown"
  | "invalid_argument"
  | "deadline_exceeded"
  | "not_found"
  | "already_exists"
  | "permission_denied"
  | "resource_exhausted"
  | "failed_precondition"
  | "unimplemented"
  | "internal"
  | "unavailable"
  | "unauthenticated";

type Row = {
  readonly http: number;
  readonly connect: ConnectCode;
  /** The store's error code on its RPC protocol, if that protocol can express this failure. */
  readonly store?: number;
  /** `false`: clients must not retry the request automatically (header `Should-Retry: false`). */
  readonly retry?: boolean;
};

export const failures = {
  // The request
  INVALID_REQUEST: { http: 400, connect: "invalid_argument" },
  UNAUTHENTICATED: { http: 401, connect: "unauthenticated" },
  ACCESS_DENIED: { http: 403, connect: "permission_denied" },
  ROUTE_NOT_FOUND: { http: 404, connect: "not_found" },
  // These operations exist in E2B's API but not in svc's: a 404 would say that the object does not exist.
  NOT_OFFERED: { http: 501, connect: "unimplemented", retry: false },
  METHOD_NOT_ALLOWED: { http: 405, connect: "invalid_argument" },
  PAYLOAD_TOO_LARGE: { http: 413, connect: "resource_exhausted" },
  UNSUPPORTED_MEDIA_TYPE: { http: 415, connect: "invalid_argument" },
  HEADERS_TOO_LARGE: { http: 431, connect: "resource_exhausted" },
  // Idempotency keys
  REQUEST_IN_FLIGHT: { http: 409, connect: "failed_precondition" },
  IDEMPOTENCY_KEY_REUSED: { http: 422, connect: "invalid_argument" },
  // This node may not create under the key, or no longer; a gateway finds the node that may.
  KEY_ELSEWHERE: { http: 421, connect: "unavailable" },
  // Sandboxes and templates
  SANDBOX_NOT_FOUND: { http: 404, connect: "not_found" },
  TEMPLATE_NOT_FOUND: { http: 404, connect: "not_found" },
  SNAPSHOT_NOT_FOUND: { http: 404, connect: "not_found" },
  BUILD_NOT_FOUND: { http: 404, connect: "not_found" },
  TAG_NOT_FOUND: { http: 404, connect: "not_found" },
  WEBHOOK_NOT_FOUND: { http: 404, connect: "not_found" },
  // Named keys
  KEY_NOT_FOUND: { http: 404, connect: "not_found" },
  PREVIEW_NOT_FOUND: { http: 404, connect: "not_found" },
  PREVIEW_EXISTS: { http: 409, connect: "already_exists" },
  // Volumes
  VOLUME_NOT_FOUND: { http: 404, connect: "not_found" },
  VOLUME_PATH_NOT_FOUND: { http: 404, connect: "not_found" },
  VOLUME_EXISTS: { http: 409, connect: "already_exists" },
  VOLUME_IN_USE: { http: 409, connect: "failed_precondition" },
  VOLUME_DAMAGED: { http: 500, connect: "internal", retry: false },
  // Secrets
  SECRET_NOT_FOUND: { http: 404, connect: "not_found" },
  SECRET_EXISTS: { http: 409, connect: "already_exists" },
  SECRETS_DAMAGED: { http: 500, connect: "internal", retry: false },
  // Clients read 409 on a pause as "was already paused", and 409 on a resume as "is already running".
  SANDBOX_PAUSED: { http: 409, connect: "failed_precondition" },
  SANDBOX_RUNNING: { http: 409, connect: "failed_precondition" },
  BUILD_CONFLICT: { http: 409, connect: "failed_precondition" },
  TEMPLATE_IN_USE: { http: 409, connect: "failed_precondition" },
  // A template that svc has a recipe for is built on first use; the message says how far it is.
  TEMPLATE_BUILDING: { http: 503, connect: "unavailable" },
  CHECKPOINT_UNAVAILABLE: { http: 400, connect: "unimplemented" },
  CHECKPOINT_FAILED: { http: 500, connect: "internal", retry: false },
  GUEST_UNRESPONSIVE: { http: 503, connect: "unavailable", retry: false },
  // The snapshot is intact but incompatible with this node (CPU, deployment or driver).
  SNAPSHOT_UNSUITABLE: { http: 422, connect: "failed_precondition", retry: false },
  BACKUP_DAMAGED: { http: 500, connect: "internal", retry: false },
  SNAPSHOT_DAMAGED: { http: 500, connect: "internal", retry: false },
  SANDBOX_CHANGING_STATE: { http: 409, connect: "failed_precondition" },
  SANDBOX_NOT_RUNNING: { http: 502, connect: "unavailable" },
  PORT_NOT_OPEN: { http: 502, connect: "unavailable" },
  // A record that `svc doctor` lists as quarantined: it is kept, but cannot be used at present.
  QUARANTINED: { http: 503, connect: "unavailable", retry: false },
  SANDBOX_START_FAILED: { http: 500, connect: "internal", retry: false },
  // Several nodes. NODE_LOST is never retried automatically, since the lost node may have executed the request.
  NODE_NOT_FOUND: { http: 404, connect: "not_found" },
  // A gateway finds the sandbox on its new node; `details.node` names it.
  SANDBOX_MOVED: { http: 421, connect: "unavailable" },
  NODE_LOST: { http: 502, connect: "unavailable", retry: false },
  // Cache indexer
  REGISTRATION_NOT_FOUND: { http: 404, connect: "not_found" },
  REGISTRATION_CONFLICT: { http: 409, connect: "already_exists" },
  // Inside a sandbox
  FILE_NOT_FOUND: { http: 404, connect: "not_found" },
  FILE_EXISTS: { http: 409, connect: "already_exists" },
  PROCESS_NOT_FOUND: { http: 404, connect: "not_found" },
  // Transfers and their metadata
  MEMORY_NOT_REGISTERED: { http: 400, connect: "failed_precondition" },
  MEMORY_OVERLAPS: { http: 409, connect: "already_exists" },
  TRANSFER_BUSY: { http: 409, connect: "failed_precondition" },
  TRANSFER_FAILED: { http: 502, connect: "unavailable" },
  TRANSPORT_UNAVAILABLE: { http: 501, connect: "unimplemented" },
  METADATA_KEY_NOT_FOUND: { http: 404, connect: "not_found" },
  METADATA_UNAVAILABLE: { http: 503, connect: "unavailable" },
  // Cache store
  STORE_KEY_NOT_FOUND: { http: 404, connect: "not_found" },
  STORE_CONFLICT: { http: 409, connect: "failed_precondition" },
  STORE_UNSUPPORTED: { http: 501, connect: "unimplemented" },
  STORE_REFUSED: { http: 500, connect: "internal", retry: false },
  // Several machines
  ETCD_UNAVAILABLE: { http: 503, connect: "unavailable" },
  ETCD_REFUSED: { http: 500, connect: "internal", retry: false },
  // Capacity and time
  TOO_MANY_REQUESTS: { http: 429, connect: "resource_exhausted" },
  // The limit of a tenant: waiting helps once one of its sandboxes has ended, or for creates a minute.
  QUOTA_EXCEEDED: { http: 429, connect: "resource_exhausted" },
  CAPACITY_EXHAUSTED: { http: 503, connect: "unavailable" },
  SERVER_UNREACHABLE: { http: 503, connect: "unavailable" },
  SHUTTING_DOWN: { http: 503, connect: "unavailable" },
  TIMED_OUT: { http: 504, connect: "deadline_exceeded" },
  DISK_FULL: { http: 507, connect: "resource_exhausted" },
  OBJECTS_UNAVAILABLE: { http: 503, connect: "unavailable" },
  // This process and its host
  SETTING_INVALID: { http: 500, connect: "failed_precondition", retry: false },
  HOST_UNSUITABLE: { http: 500, connect: "failed_precondition", retry: false },
  INTERNAL: { http: 500, connect: "internal", retry: false },
} as const satisfies Record<string, Row>;

export type FailureName = keyof typeof failures;

/** Thrown for every failure that a caller can see; `name` is a row of the table. */
export class Failure extends Error {
  override readonly name: FailureName;
  /** The number of seconds after which a retry makes sense; sent as `Retry-After`. */
  readonly retryAfterSeconds: number | undefined;
  /** Additional members of the error body (for example `sandboxId`). */
  readonly details: Readonly<Record<string, string | number>>;

  constructor(name: FailureName, message: string, options: FailureOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = name;
    this.retryAfterSeconds = options.retryAfterSeconds;
    this.details = options.details ?? {};
  }

  get row(): Row {
    return failures[this.name];
  }
}

export type FailureOptions = {
  cause?: unknown;
  retryAfterSeconds?: number;
  details?: Record<string, string | number>;
};

/** Throws the failure `name`; it is an expression, so that it can follow `??`. */
export function fail(name: FailureName, message: string, options: FailureOptions = {}): never {
  throw new Failure(name, message, options);
}

/** The codes of a full disk from the kernel, SQLite (13 is SQLITE_FULL), tar and other programs. */
const fullCodes: readonly unknown[] = ["ENOSPC", "EDQUOT", 13];
const fullWords = /no space left on device|disk quota exceeded|database or disk is full|wrote only \d+ of \d+ bytes/i;

/** Returns true if a write failed because the disk is full. */
export function isDiskFull(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const { code, errcode } = error as { code?: unknown; errcode?: unknown };
  return error.name === "DISK_FULL" || fullCodes.includes(code) || fullCodes.includes(errcode) || fullWords.test(error.message);
}

/** Names the disk and says what to do, for people. The system's own message becomes the cause, for the log. */
export function diskFull(error: unknown): Failure {
  const { path, dest } = error as { path?: unknown; dest?: unknown };
  const named = [dest, path].find((each) => typeof each === "string");
  return new Failure("DISK_FULL", `the disk${named === undefined ? "" : ` that holds ${named}`} is full: make room there and try again`, { cause: error });
}

/** Returns a Failure as it is, and wraps any other thrown value in `DISK_FULL` or `INTERNAL`. */
export function asFailure(error: unknown): Failure {
  if (error instanceof Failure) return error;
  if (isDiskFull(error)) return diskFull(error);
  return new Failure("INTERNAL", error instanceof Error ? error.message : String(error), { cause: error });
}

/** The JSON body of a failure. Clients use `code`, which repeats the HTTP status. */
export type FailureBody = { code: number; message: string; error_code: FailureName } & Record<string, string | number>;

export function failureBody(failure: Failure): FailureBody {
  return { ...failure.details, code: failure.row.http, message: failure.message, error_code: failure.name };
}
