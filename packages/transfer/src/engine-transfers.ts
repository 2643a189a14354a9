// Batches and transfers: the part of the class that moves bytes.
import { asFailure } from "@svc/contract/failures.ts";
import type { EngineCore } from "./engine-core.ts";
import { native, transferPromise } from "./native.ts";
import { packRanges, packRequests, type Ranges, type TransferRequest } from "./request.ts";
import { failureFor, INVALID_BATCH_ID, OPCODE, type Opcode, type TransferStatusName, transferStatuses } from "./status.ts";

export type Notify = { readonly name: string; readonly msg: string };

/** `transferredBytes` is a lower bound while the request is in flight. */
export type TransferStatus = { readonly status: TransferStatusName; readonly transferredBytes: bigint };

/** No limit for a promise that ends with its batch: transfers have their own time-out. */
const NO_LIMIT_MS = 0xffff_ffffn;

export class EngineTransfers {
  protected readonly core: EngineCore;

  constructor(core: EngineCore) {
    this.core = core;
  }

  /** Allocates a batch of at most `batchSize` requests. Returns INVALID_BATCH_ID if none is available. */
  allocateBatchID(batchSize: number): bigint {
    try {
      return this.core.call("allocateBatchID", [], [BigInt(batchSize)]) as bigint;
    } catch {
      return INVALID_BATCH_ID;
    }
  }

  /**
   * Starts all requests, which end in the background, or refuses all of them.
   * @throws TOO_MANY_REQUESTS above the batch's size, MEMORY_NOT_REGISTERED, INVALID_REQUEST, TRANSPORT_UNAVAILABLE.
   */
  submitTransfer(batchID: bigint, entries: readonly TransferRequest[]): void {
    this.core.views.recheck();
    this.core.checked(native().submit(this.core.handle, batchID, packRequests(entries)));
  }

  /**
   * Like submitTransfer. Once all requests have completed, the first entry's target receives the message, whether or not the caller queries
   * the status.
   */
  submitTransferWithNotify(batchID: bigint, entries: readonly TransferRequest[], notify: Notify): void {
    this.core.views.recheck();
    this.core.checked(native().submit(this.core.handle, batchID, packRequests(entries), notify.name, notify.msg));
  }

  /** `taskID` is the request's index in the batch. */
  getTransferStatus(batchID: bigint, taskID: number): TransferStatus {
    return this.#status(batchID, taskID);
  }

  /** FAILED as soon as one request failed, COMPLETED once all did. The bytes are those of completed requests. */
  getBatchTransferStatus(batchID: bigint): TransferStatus {
    return this.#status(batchID, -1);
  }

  #status(batchID: bigint, task: number): TransferStatus {
    const out = new BigUint64Array(2);
    this.core.checked(native().status(this.core.handle, batchID, task, out));
    return { status: transferStatuses[Number(out[0])] ?? "INVALID", transferredBytes: out[1] ?? 0n };
  }

  /** The reason why a request FAILED: peer, range and cause. Empty otherwise. */
  getTransferError(batchID: bigint, taskID: number): string {
    return this.core.call("getTransferError", [], [batchID, BigInt(taskID)]) as string;
  }

  /** Resolves once no request of the batch is in flight; false after `timeoutMs`. */
  async waitBatch(batchID: bigint, timeoutMs?: number): Promise<boolean> {
    return (await this.core.callAsync("waitBatch", [], [batchID, timeoutMs === undefined ? NO_LIMIT_MS : BigInt(timeoutMs)])) === 1;
  }
  waitBatchSync(batchID: bigint, timeoutMs?: number): boolean {
    return this.core.call("waitBatch", [], [batchID, timeoutMs === undefined ? NO_LIMIT_MS : BigInt(timeoutMs)]) === 1;
  }

  /** @throws TRANSFER_BUSY while requests are in flight, INVALID_REQUEST for a handle that was freed or never allocated. */
  freeBatchID(batchID: bigint): void {
    this.core.call("freeBatchID", [], [batchID]);
  }

  /**
   * Transfers ranges to or from one target; resolves when all have completed. 0 ms means the engine's transfer_timeout_ms.
   * @throws TRANSFER_FAILED with the first failed range; others may have been transferred.
   */
  transfer(opcode: Opcode, targetID: bigint, ranges: Ranges, timeoutMs = 0): Promise<void> {
    try {
      this.core.views.recheck();
      const keep = [this.core, ranges];
      return transferPromise(this.core.handle, OPCODE[opcode], targetID, packRanges(ranges), timeoutMs, keep, failureFor);
    } catch (error) {
      return Promise.reject(asFailure(error));
    }
  }
  transferSync(opcode: Opcode, targetID: bigint, ranges: Ranges, timeoutMs = 0): void {
    this.core.views.recheck();
    this.core.checked(native().transferSync(this.core.handle, OPCODE[opcode], targetID, packRanges(ranges), timeoutMs));
  }

  /** The engine's counters in Prometheus' text format. */
  metrics(): string {
    return this.core.call("metrics") as string;
  }
}
