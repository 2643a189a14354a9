// Requests that wait while their sandbox is resumed or moves, with one attempt per sandbox for all of them.
import { asFailure, Failure } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import { type Answer, answer } from "@svc/kit/proxy/answer.ts";
import type { RoutedClient, Wait } from "@svc/kit/proxy/decision.ts";
import type { ProxyLimits } from "@svc/kit/proxy/limits.ts";
import type { SandboxDirectory } from "../records/directory.ts";
import { notFound } from "./sandbox-target.ts";

/** Bound on the wakes for one request, if the sandbox is paused again before the request reaches it. */
const maxRounds = 5;

export const wakeOutcomes = ["resumed", "moved", "gone", "busy", "failed"] as const;
export type WakeOutcome = (typeof wakeOutcomes)[number];

/** One attempt, and the requests that wait for it. */
type Attempt = { readonly sandboxID: string; readonly clients: Set<RoutedClient> };

export type WakesOptions = {
  readonly directory: SandboxDirectory;
  readonly limits: ProxyLimits;
  readonly log: Log;
  /** Called at the end of each attempt. */
  readonly onWake: (outcome: WakeOutcome) => void;
};

export class Wakes {
  readonly #options: WakesOptions;
  /** Current attempts; the directory refuses when there are too many. */
  readonly #attempts = new Map<string, Attempt>();
  /** The number of requests that wait now. */
  waiting = 0;

  constructor(options: WakesOptions) {
    this.#options = options;
  }

  /** Lets a request wait whose credentials are valid; a wait for a sandbox that moves does not start the move. `kind` is the observer's. */
  wait(sandboxID: string, client: RoutedClient, kind: number): Wait | Answer {
    const { limits } = this.#options;
    if (client.rounds >= maxRounds) return resumeFailed(sandboxID, "it was paused again each time before this request reached it");
    const known = this.#attempts.get(sandboxID);
    if (this.waiting >= limits.waiting || (known !== undefined && known.clients.size >= limits.waitingPerTarget)) {
      const members = { sandboxId: sandboxID };
      return answer(429, "The sandbox is being resumed, and as many requests as may are waiting for it; try again", members, { "Retry-After": "1" });
    }
    const attempt = known ?? { sandboxID, clients: new Set() };
    const wait: Wait = {
      kind,
      leave: () => {
        if (attempt.clients.delete(client)) this.waiting--;
      },
      tooLate: () => resumeFailed(sandboxID, `it was not back within ${limits.wakeMs / 1000} s`),
    };
    attempt.clients.add(client);
    this.waiting++;
    if (known === undefined) {
      this.#attempts.set(sandboxID, attempt);
      void this.#run(attempt, client.peer);
    }
    return wait;
  }

  /** Never throws; continues when all waiting requests have left, since a resume cannot be undone. */
  async #run(attempt: Attempt, clientAddress: string): Promise<void> {
    const { directory, log, onWake } = this.#options;
    const { sandboxID, clients } = attempt;
    let verdict: Answer | undefined;
    let outcome: WakeOutcome = "resumed";
    try {
      if (directory.isMoving(sandboxID)) {
        outcome = "moved";
        await directory.moveOver(sandboxID);
      } else await directory.wake(sandboxID, clientAddress);
    } catch (error) {
      outcome = outcomeOf(error);
      verdict = answerTo(error, sandboxID);
      if (outcome === "failed") log.warn({ err: error, sandboxID, waiting: clients.size }, "a sandbox could not be resumed for a request");
    }
    // From here on, a new request starts another attempt.
    this.#attempts.delete(sandboxID);
    this.waiting -= clients.size;
    for (const client of clients) client.proceed(verdict);
    clients.clear();
    onWake(outcome);
  }
}

function outcomeOf(error: unknown): WakeOutcome {
  const { name } = asFailure(error);
  return name === "SANDBOX_NOT_FOUND" ? "gone" : name === "TOO_MANY_REQUESTS" ? "busy" : "failed";
}

function answerTo(error: unknown, sandboxID: string): Answer {
  const failure = asFailure(error);
  if (failure.name === "SANDBOX_NOT_FOUND") return notFound(sandboxID);
  const wait = failure.retryAfterSeconds;
  if (failure.name === "TOO_MANY_REQUESTS") return answer(429, failure.message, { sandboxId: sandboxID }, { "Retry-After": String(wait ?? 1) });
  // An error that is not a Failure is a fault of the node, and its message belongs in the log only.
  const why = error instanceof Failure ? failure.message : "the node met a fault of its own; its log says which";
  return resumeFailed(sandboxID, why, {
    ...(wait === undefined ? {} : { "Retry-After": String(wait) }),
    ...(failure.row.retry === false ? { "Should-Retry": "false" } : {}),
    ...(failure.details["reason"] === "draining" ? { "x-svc-reason": "draining" } : {}),
  });
}

/**
 * Answers 502 instead of 504, even after a timeout: clients treat only 502 as a sandbox that does not run, and derive from its text whether it
 * is gone for good or has a closed port. Neither is true here, so `why` must not contain those texts.
 */
function resumeFailed(sandboxID: string, why: string, headers: Readonly<Record<string, string>> = {}): Answer {
  const said = why.replace(/was not found/gi, "is missing").replace(/port is not open/gi, "port is closed");
  return answer(502, `The sandbox is paused and could not be resumed: ${said}`, { sandboxId: sandboxID }, { "x-svc-reason": "resume_failed", ...headers });
}
