// A lease of etcd, renewed three times within its TTL. We treat it as lost a margin before etcd would let it expire.
import { fail } from "@svc/contract/failures.ts";
import { z } from "zod";
import type { Endpoints } from "./endpoints.ts";
import { int64 } from "./wire.ts";

export type Lease = {
  readonly id: string;
  /** The TTL that etcd granted; it may be longer than requested, because etcd's election timeout sets a minimum. */
  readonly ttlMs: number;
  /**
   * Returns whether etcd certainly still holds the lease. The time counts on the monotonic clock from before the last renewal was sent,
   * less a margin, so the answer is right even just after a suspended process continues.
   */
  isHeld(): boolean;
  /** Revokes the lease, which deletes its keys. If etcd does not answer, they go when the lease expires. */
  release(): Promise<void>;
  /** Stops the renewals and lets the lease expire. */
  close(): Promise<void>;
};

/** The margin covers clocks that drift and timers that fire late. */
const MARGIN = 0.2;
const RENEWALS = 3;
const RETRY_MS = 100;

const granted = z.object({ ID: int64, TTL: int64 });
const renewed = z.object({ result: z.object({ TTL: int64 }) });
const revoked = z.object({});

export async function grantLease(endpoints: Endpoints, ttlSeconds: number, onLost: (reason: string) => void, onEnd: () => void): Promise<Lease> {
  if (!Number.isInteger(ttlSeconds) || ttlSeconds < 1) fail("SETTING_INVALID", `expected a lease of whole seconds, 1 or more, got ${ttlSeconds}`);
  let sentMs = performance.now();
  // A grant whose answer was lost expires by itself.
  const { ID, TTL } = await endpoints.call("/v3/lease/grant", { TTL: String(ttlSeconds) }, granted);
  const id = String(ID);
  const ttlMs = Number(TTL) * 1000;
  const heldMs = ttlMs * (1 - MARGIN);
  let state: "kept" | "lost" | "closed" = "kept";
  let renewal: NodeJS.Timeout | undefined;
  let deadline: NodeJS.Timeout | undefined;

  function stop(next: "lost" | "closed"): void {
    state = next;
    clearTimeout(renewal);
    clearTimeout(deadline);
    onEnd();
  }
  function lose(reason: string): void {
    if (state !== "kept") return;
    stop("lost");
    onLost(reason);
  }
  function schedule(inMs: number): void {
    if (state !== "kept") return;
    clearTimeout(deadline);
    deadline = setTimeout(
      () => lose(`etcd has not renewed it for ${Math.round(performance.now() - sentMs)} ms of its ${ttlMs}`),
      Math.max(0, sentMs + heldMs - performance.now()),
    );
    renewal = setTimeout(() => void renew(), inMs);
  }
  async function renew(): Promise<void> {
    const beginMs = performance.now();
    try {
      const { result } = await endpoints.call("/v3/lease/keepalive", { ID: id }, renewed);
      if (state !== "kept") return;
      if (result.TTL <= 0n) return lose("etcd does not know it any more: it was over or was revoked");
      sentMs = beginMs;
      schedule(ttlMs / RENEWALS);
    } catch {
      // The deadline timer reports the loss if renewals keep failing.
      schedule(RETRY_MS);
    }
  }
  schedule(ttlMs / RENEWALS);

  return {
    id,
    ttlMs,
    isHeld: () => state === "kept" && performance.now() < sentMs + heldMs,
    async release() {
      if (state === "kept") stop("closed");
      await endpoints.call("/v3/lease/revoke", { ID: id }, revoked).catch(() => undefined);
    },
    async close() {
      if (state === "kept") stop("closed");
    },
  };
}
