// Requests that wait while their sandbox is resumed or moves: one attempt per sandbox, however many wait for it.
import { asFailure, Failure } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import { type Answer, answer } from "@svc/kit/proxy/answer.ts";
import type { RoutedClient, Wait } from "@svc/kit/proxy/decision.ts";
import type { ProxyLimits } from "@svc/kit/proxy/limits.ts";
import type { SandboxDirectory } from "../records/directory.ts";
import { notFound } from "./sandbox-target.ts";

/** A sandbox that is paused again before its request gets to it is woken again, this often for one request. */
const maxRounds = 5;

export const wakeOutcomes = ["resumed", "moved", "gone", "busy", "failed"] as const;
export type WakeOutcome = (typeof wakeOutcomes)[number];

/** One attempt, and the requests that wait for it. */
type Attempt = { readonly sandboxID: string; readonly clients: Set<RoutedClient> };

export type WakesOptions = {
  readonly directory: SandboxDirectory;
  readonly limits: ProxyLimits;
  readonly log: Log;
  /** One attempt is over. */
  readonly onWake: (outcome: WakeOutcome) => void;
};

export class Wakes {
  readonly #options: WakesOptions;
  /** Attempts under way; the directory refuses when there are too many. */
  readonly #attempts = new Map<string, Attempt>();
  /** Requests that wait now. */
  waiting = 0;

  constructor(options: WakesOptions) {
    this.#options = options;
  }

  /** Lets a request wait whose credentials are right, or whose sandbox moves, which it does not begin; `kind` is the observer's. */
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

  /** Never throws; goes on when all who waited have left, since a resume cannot be taken back. */
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
    // From here a request that comes starts another attempt.
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
  // What is no Failure is a fault of the node's own, and its words are for the log.
  const why = error instanceof Failure ? failure.message : "the node met a fault of its own; its log says which";
  return resumeFailed(sandboxID, why, {
    ...(wait === undefined ? {} : { "Retry-After": String(wait) }),
    ...(failure.row.retry === false ? { "Should-Retry": "false" } : {}),
    ...(failure.details["reason"] === "draining" ? { "x-svc-reason": "draining" } : {}),
  });
}

/**
 * 502 and not 504, also when it took too long: clients take 502 alone for a sandbox that does not run, and tell from its
 * words whether it is gone for good, or runs with a closed port. Neither is true here, so `why` must not hold those words.
 */
function resumeFailed(sandboxID: string, why: string, headers: Readonly<Record<string, string>> = {}): Answer {
  const said = why.replace(/was not found/gi, "is missing").replace(/port is not open/gi, "port is closed");
  return answer(502, `The sandbox is paused and could not be resumed: ${said}`, { sandboxId: sandboxID }, { "x-svc-reason": "resume_failed", ...headers });
}
