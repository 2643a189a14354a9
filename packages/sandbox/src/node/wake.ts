// Traffic to a paused sandbox resumes it: one attempt at a time, however many requests wait for it.
import { Failure } from "@svc/contract/failures.ts";
import type { Node } from "./node.ts";
import { resumeSandbox } from "./resume.ts";

const MAX_WAITERS_PER_SANDBOX = 1024;
/** After a resume that failed, who asks within this time gets the same answer: trying again at once would fail again. */
const COOL_DOWN_MS = 1_000;

type Attempt = { readonly done: Promise<void>; waiters: number };
const underWay = new WeakMap<Node, Map<string, Attempt>>();

/** @throws TOO_MANY_REQUESTS, SANDBOX_NOT_FOUND, and what a resume throws; all who wait get the same. */
export async function wakeSandbox(node: Node, sandboxID: string, clientAddress: string): Promise<void> {
  const attempts = underWay.get(node) ?? new Map<string, Attempt>();
  underWay.set(node, attempts);
  let attempt = attempts.get(sandboxID);
  if (attempt === undefined) {
    const done = wake(node, sandboxID, clientAddress);
    attempt = { done, waiters: 0 };
    attempts.set(sandboxID, attempt);
    const forget = () => attempts.delete(sandboxID);
    done.then(forget, () => setTimeout(forget, COOL_DOWN_MS).unref());
  }
  if (attempt.waiters >= MAX_WAITERS_PER_SANDBOX) {
    throw new Failure("TOO_MANY_REQUESTS", `${attempt.waiters} requests wait for sandbox '${sandboxID}' to resume already`, { retryAfterSeconds: 1 });
  }
  attempt.waiters++;
  try {
    await attempt.done;
  } finally {
    attempt.waiters--;
  }
}

async function wake(node: Node, sandboxID: string, clientAddress: string): Promise<void> {
  const { claim } = node.registry.owned(sandboxID).status;
  const timeoutSeconds = Math.max(claim.timeoutSeconds, node.settings.sandbox.auto_resume_min_timeout_seconds);
  await resumeSandbox(node, sandboxID, { timeoutSeconds, cause: "traffic", client: clientAddress });
}
