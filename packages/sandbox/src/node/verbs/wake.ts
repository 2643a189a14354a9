// Traffic to a paused sandbox resumes it: one attempt at a time, shared by all requests that wait for it.
import { Failure } from "@svc/contract/failures.ts";
import type { SandboxDirectory } from "../../records/directory.ts";
import type { Registry } from "../../records/registry.ts";
import type { ResumeSandbox } from "./resume.ts";

const MAX_WAITERS_PER_SANDBOX = 1024;
/** Requests within this time after a failed resume get the same failure: an immediate retry would fail again. */
const COOL_DOWN_MS = 1_000;

type Attempt = { readonly done: Promise<void>; waiters: number };

export type WakeParts = {
  readonly registry: Pick<Registry, "owned">;
  readonly resume: ResumeSandbox;
  /** A lower bound of the timeout, for sandboxes whose own timeout is shorter. */
  readonly minTimeoutSeconds: number;
};

/** @throws TOO_MANY_REQUESTS, SANDBOX_NOT_FOUND, and the failures of a resume; all waiters get the same one. */
export function openWake({ registry, resume, minTimeoutSeconds }: WakeParts): SandboxDirectory["wake"] {
  const attempts = new Map<string, Attempt>();

  async function wake(sandboxID: string, client: string): Promise<void> {
    const { claim } = registry.owned(sandboxID).status;
    await resume(sandboxID, { timeoutSeconds: Math.max(claim.timeoutSeconds, minTimeoutSeconds), cause: "traffic", client });
  }

  return async (sandboxID, clientAddress) => {
    let attempt = attempts.get(sandboxID);
    if (attempt === undefined) {
      const done = wake(sandboxID, clientAddress);
      attempt = { done, waiters: 0 };
      attempts.set(sandboxID, attempt);
      const forget = () => attempts.delete(sandboxID);
      done.then(forget, () => setTimeout(forget, COOL_DOWN_MS).unref());
    }
    if (attempt.waiters >= MAX_WAITERS_PER_SANDBOX) {
      throw new Failure("TOO_MANY_REQUESTS", `${attempt.waiters} requests wait for sandbox '${sandboxID}' to resume, the maximum; try again later`, {
        retryAfterSeconds: 1,
      });
    }
    attempt.waiters++;
    try {
      await attempt.done;
    } finally {
      attempt.waiters--;
    }
  };
}
