// Batches and transfers of the engine: the half of the class that moves bytes.
import { asFailure } from "@svc/contract/failures.ts";
import type { EngineCore } from "./engine-core.ts";
import { native, transferPromise } from "./native.ts";
import { packRanges, packRequests, type Ranges, type TransferRequest } from "./request.ts";
import { failureFor, INVALID_BATCH_ID, OPCODE, type Opcode, type TransferStatusName, transferStatuses } from "./status.ts";

export type Notify = { readonly name: string; readonly msg: string };

export type TransferStatus = { readonly status: TransferStatusName /** A lower bound. */; readonly transferredBytes: bigint };

/** Forever, for a promise that ends when the batch does: transfers have their own bound. */
const NO_LIMIT_MS = 0xffff_ffffn;

export class EngineTransfers {
  protected readonly core: EngineCore;

  constructor(core: EngineCore) {
    this.core = core;
  }

  /** A batch for at most `batchSize` requests. INVALID_BATCH_ID when there is none to be had. */
  allocateBatchID(batchSize: number): bigint {
    try {
      return this.core.call("allocateBatchID", [], [BigInt(batchSize)]) as bigint;
    } catch {
      return INVALID_BATCH_ID;
    }
  }

  /**
   * Starts requests; they end in the background. All are refused, or all start.
   * @throws TOO_MANY_REQUESTS past the batch's size, MEMORY_NOT_REGISTERED, INVALID_REQUEST, TRANSPORT_UNAVAILABLE.
   */
  submitTransfer(batchID: bigint, entries: readonly TransferRequest[]): void {
    this.core.views.recheck();
    this.core.checked(native().submit(this.core.handle, batchID, packRequests(entries)));
  }

  /** As submitTransfer; when all have completed, the target of the first entry gets the message, whether or not anybody asks for the status. */
  submitTransferWithNotify(batchID: bigint, entries: readonly TransferRequest[], notify: Notify): void {
    this.core.views.recheck();
    this.core.checked(native().submit(this.core.handle, batchID, packRequests(entries), notify.name, notify.msg));
  }

  /** `taskID` is the request's number in the batch, from 0. */
  getTransferStatus(batchID: bigint, taskID: number): TransferStatus {
    return this.#status(batchID, taskID);
  }

  /** FAILED as soon as one request failed, COMPLETED when all did; bytes of the completed ones. */
  getBatchTransferStatus(batchID: bigint): TransferStatus {
    return this.#status(batchID, -1);
  }

  #status(batchID: bigint, task: number): TransferStatus {
    const out = new BigUint64Array(2);
    this.core.checked(native().status(this.core.handle, batchID, task, out));
    return { status: transferStatuses[Number(out[0])] ?? "INVALID", transferredBytes: out[1] ?? 0n };
  }

  /** Why a request FAILED: peer, range and cause. Empty while it has not. */
  getTransferError(batchID: bigint, taskID: number): string {
    return this.core.call("getTransferError", [], [batchID, BigInt(taskID)]) as string;
  }

  /** Settles when no request of the batch is in flight; false when `timeoutMs` passed before. */
  async waitBatch(batchID: bigint, timeoutMs?: number): Promise<boolean> {
    return (await this.core.callAsync("waitBatch", [], [batchID, timeoutMs === undefined ? NO_LIMIT_MS : BigInt(timeoutMs)])) === 1;
  }
  waitBatchSync(batchID: bigint, timeoutMs?: number): boolean {
    return this.core.call("waitBatch", [], [batchID, timeoutMs === undefined ? NO_LIMIT_MS : BigInt(timeoutMs)]) === 1;
  }

  /** @throws TRANSFER_BUSY while requests are in flight, INVALID_REQUEST for a handle that was freed or never given out. */
  freeBatchID(batchID: bigint): void {
    this.core.call("freeBatchID", [], [batchID]);
  }

  /**
   * Ranges to or from one target, done when all of them are. 0 ms is the engine's transfer_timeout_ms.
   * @throws TRANSFER_FAILED with the first range that failed; others may have gone through.
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

  /** Prometheus text of this engine's counters. */
  metrics(): string {
    return this.core.call("metrics") as string;
  }
}
