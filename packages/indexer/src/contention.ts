// Whether this thread waits for a core while it could run: the kernel counts it.
import { readFileSync } from "node:fs";

const SAMPLE_MS = 100;
/** Of the time between two samples: beyond it others want the cores as well. */
const WAITED_SHARE = 0.05;

export class Contention {
  readonly #waitedMs: () => number | undefined;
  #sampledMs = performance.now();
  #beforeMs: number | undefined;
  #found = false;

  /** `waitedMs`: so far, of the main thread; undefined where the kernel does not count it, which is taken for waiting. */
  constructor(waitedMs: () => number | undefined = waitedForCoreMs) {
    this.#waitedMs = waitedMs;
    this.#beforeMs = waitedMs();
  }

  /** As of the last tenth of a second. */
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

/** The second number of the main thread's `schedstat`, in nanoseconds there. */
function waitedForCoreMs(): number | undefined {
  try {
    const waitedNs = Number(readFileSync("/proc/self/schedstat", "latin1").split(" ")[1]);
    return Number.isFinite(waitedNs) ? waitedNs / 1e6 : undefined;
  } catch {
    return undefined;
  }
}
