// The engine's codes and the corresponding failures.
import { Failure, type FailureName } from "@svc/contract/failures.ts";

export const OPCODE = { READ: 0, WRITE: 1 } as const;
export type Opcode = keyof typeof OPCODE;

/** PENDING, CANCELED and TIMEOUT are never reported. */
export const transferStatuses = ["WAITING", "PENDING", "INVALID", "CANCELED", "COMPLETED", "TIMEOUT", "FAILED"] as const;
export type TransferStatusName = (typeof transferStatuses)[number];

export const INVALID_BATCH_ID = 0xffff_ffff_ffff_ffffn;
export const INVALID_SEGMENT_ID = 0xffff_ffff_ffff_ffffn;
/** The engine's own RAM segment. */
export const LOCAL_SEGMENT_ID = 0n;

const names: Readonly<Record<number, FailureName>> = {
  [-1]: "INVALID_REQUEST",
  [-2]: "TOO_MANY_REQUESTS",
  [-3]: "MEMORY_NOT_REGISTERED",
  [-4]: "TRANSFER_BUSY",
  [-7]: "MEMORY_OVERLAPS",
  [-8]: "TRANSPORT_UNAVAILABLE",
  [-101]: "SERVER_UNREACHABLE",
  [-200]: "METADATA_UNAVAILABLE",
  [-201]: "SERVER_UNREACHABLE",
};

/** Returns the failure for a negative code; `details.transferCode` contains the code. */
export function failureFor(code: number | bigint, error: string, otherwise: FailureName = "TRANSFER_FAILED"): Failure {
  const number = typeof code === "bigint" ? -200 : code;
  return new Failure(names[number] ?? otherwise, error, { details: { transferCode: number } });
}
