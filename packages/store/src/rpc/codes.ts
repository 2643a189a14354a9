// The error codes of the store's wire, by name.
export const codes = {
  OK: 0,
  INTERNAL_ERROR: -1,
  SEGMENT_NOT_FOUND: -101,
  SEGMENT_ALREADY_EXISTS: -102,
  CLIENT_NOT_FOUND: -103,
  NO_AVAILABLE_HANDLE: -200,
  INVALID_KEY: -400,
  INVALID_PARAMS: -600,
  ILLEGAL_CLIENT: -601,
  INVALID_WRITE: -700,
  REPLICA_IS_NOT_READY: -703,
  OBJECT_NOT_FOUND: -704,
  OBJECT_ALREADY_EXISTS: -705,
  OBJECT_HAS_LEASE: -706,
  OBJECT_HAS_REPLICATION_TASK: -708,
  OBJECT_NO_REPLICATION_TASK: -709,
  REPLICA_NOT_FOUND: -710,
  REPLICA_ALREADY_EXISTS: -711,
  CHECKSUM_MISMATCH: -801,
  UNAVAILABLE_IN_CURRENT_STATUS: -1010,
  UNAVAILABLE_IN_CURRENT_MODE: -1011,
  UNABLE_OFFLOAD: -1300,
  TASK_NOT_FOUND: -1400,
  TASK_PENDING_LIMIT_EXCEEDED: -1401,
  JOB_NOT_FOUND: -1402,
  PERSISTENT_FAIL: -1503,
  TENANT_QUOTA_EXCEEDED: -1700,
  TENANT_NOT_REGISTERED: -1701,
  TENANT_NOT_EMPTY: -1702,
} as const;

export type CodeName = keyof typeof codes;

const names = new Map<number, CodeName>(Object.entries(codes).map(([name, code]) => [code, name as CodeName]));

export const codeName = (code: number): string => names.get(code) ?? `error ${code}`;
