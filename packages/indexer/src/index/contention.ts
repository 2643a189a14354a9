// Detects from the kernel's counter that this thread waits for a core although it could run.
import { readFileSync } from "node:fs";

const SAMPLE_MS = 100;
/** The share of the time between two samples; a thread that waits longer competes with others for the cores. */
const WAITED_SHARE = 0.05;

export class Contention {
  readonly #waitedMs: () => number | undefined;
  #sampledMs = performance.now();
  #beforeMs: number | undefined;
  #found = false;

  /** `waitedMs` returns the main thread's total wait so far; undefined (the kernel does not count it) is treated as contention. */
  constructor(waitedMs: () => number | undefined = waitedForCoreMs) {
    this.#waitedMs = waitedMs;
    this.#beforeMs = waitedMs();
  }

  /** True if the last sample, at most a tenth of a second old, showed contention. */
  get found(): boolean {
    const nowMs = performance.now();
    if (nowMs - this.#sampledMs < SAMPLE_MS) return this.#found;
    const waitedMs = this.#waitedMs();
    this.#found = waitedMs === undefined || this.#beforeMs === undefined || waitedMs - this.#beforeMs > WAITED_SHARE * (nowMs - this.#sampledMs);
    this.#beforeMs = waitedMs;
    this.#sampledMs = nowMs;
    return this.#found;
  }
}

/** Returns the second number of the main thread's `schedstat` in milliseconds; the kernel gives nanoseconds. */
function waitedForCoreMs(): number | undefined {
  try {
    const waitedNs = Number(readFileSync("/proc/self/schedstat", "latin1").split(" ")[1]);
    return Number.isFinite(waitedNs) ? waitedNs / 1e6 : undefined;
  } catch {
    return undefined;
  }
}
