// Waits until envd answers; the node sends it nothing else before.
import { setTimeout as sleep } from "node:timers/promises";
import { Failure } from "@svc/contract/failures.ts";
import type { RuntimeHandle } from "../runtime/runtime.ts";
import { requestAgent } from "./request.ts";

const POLL_MS = 3;
/** While the sandbox's network stack starts, a SYN may be lost, and its retransmission would cost a second. */
const ATTEMPT_MS = 50;
const LONGEST_ATTEMPT_MS = 2_000;
/** A bound for the answer, which is empty if envd sends it. */
const MAX_ANSWER_BYTES = 64 * 1024;

/** Waits until envd answers /health. @throws SANDBOX_START_FAILED after `boundMs`, or when `isAlive` returns false. */
export async function untilHealthy(handle: RuntimeHandle, boundMs: number, isAlive: () => boolean): Promise<void> {
  const end = performance.now() + boundMs;
  let last = "no answer";
  let attemptMs = ATTEMPT_MS;
  while (performance.now() < end) {
    const begun = performance.now();
    try {
      const status = await requestAgent(handle, {
        method: "GET",
        path: "/health",
        boundMs: Math.min(attemptMs, end - performance.now()),
        maxBytes: MAX_ANSWER_BYTES,
      });
      if (status.code === 204) return;
      last = `/health answered ${status.code}`;
    } catch (error) {
      last = (error as Error).message;
    }
    // On a host so busy that no answer comes in time, later attempts wait longer.
    if (performance.now() - begun >= attemptMs) attemptMs = Math.min(attemptMs * 1.5, LONGEST_ATTEMPT_MS);
    if (!isAlive()) throw new Failure("SANDBOX_START_FAILED", `the sandbox died before envd answered (${last})`);
    await sleep(POLL_MS);
  }
  throw new Failure("SANDBOX_START_FAILED", `envd did not answer within ${boundMs} ms (${last})`);
}
