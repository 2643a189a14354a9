// The control plane as a target: a unix socket on the same host.
import { type Answer, answer } from "./answer.ts";
import type { TargetPolicy } from "./target.ts";
import type { Trouble, Way } from "./upstream.ts";

export class ControlPlane implements TargetPolicy {
  readonly idleMs = 30_000;
  readonly saysMoved = false;
  readonly #ways: readonly Way[];

  constructor(path: string) {
    this.#ways = [{ connect: { path } }];
  }

  ways(): readonly Way[] {
    return this.#ways;
  }

  reached(): void {}

  answerFor(trouble: Trouble, detail: string): Answer {
    // Unless the connection was refused, the request may have been executed, so clients must not repeat it automatically.
    const retry = trouble === "refused" ? { "Retry-After": "1" } : { "Should-Retry": "false" };
    return answer(503, `The control plane gave no response: ${detail}`, {}, retry);
  }
}
