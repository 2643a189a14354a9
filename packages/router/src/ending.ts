// The end of a request before its answer is whole: its client left, or its deadline passed. An AbortSignal costs several times as much per request.
import type { Refusal } from "./refusals.ts";

export class Ending {
  isOver = false;
  /** Set once the deadline has passed; undefined if the client left. */
  reason: Refusal | undefined;
  #listeners: (() => void)[] = [];

  /** Calls the listener once, at the end; at once if that has come already. */
  on(listener: () => void): void {
    if (this.isOver) listener();
    else this.#listeners.push(listener);
  }

  off(listener: () => void): void {
    const at = this.#listeners.indexOf(listener);
    if (at >= 0) this.#listeners.splice(at, 1);
  }

  end(reason?: Refusal): void {
    if (this.isOver) return;
    this.isOver = true;
    this.reason = reason;
    const listeners = this.#listeners;
    this.#listeners = [];
    for (const listener of listeners) listener();
  }
}
