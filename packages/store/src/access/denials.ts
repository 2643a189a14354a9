// Logs refused callers at a bounded rate: at most one line a second, however many calls are refused.
import type { Log } from "@svc/kit/log.ts";

const EVERY_MS = 1000;

export class Denials {
  readonly #log: Log;
  readonly #nowMs: () => number;
  #quietUntilMs = 0;
  #unsaid = 0;

  constructor(log: Log, nowMs: () => number = () => performance.now()) {
    this.#log = log;
    this.#nowMs = nowMs;
  }

  note(peer: string, message: string, count = 1): void {
    const now = this.#nowMs();
    this.#unsaid += count;
    if (now < this.#quietUntilMs) return;
    this.#log.warn({ peer, refused: this.#unsaid }, message);
    this.#unsaid = 0;
    this.#quietUntilMs = now + EVERY_MS;
  }
}
