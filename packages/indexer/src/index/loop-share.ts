// Shares the event loop: bulk work gets a slice of each tick, and within the slice one peer after the other. It may pause between two
// slices, so that the thread sleeps and is scheduled at once when something else comes.

type Job = () => void;

/** The maximum number of jobs in one tick: the work between two ticks (timers, sockets) costs little compared with that many. */
const MAX_STEPS = 64;

export class LoopShare {
  readonly #sliceMs: () => number;
  readonly #restMs: () => number;
  /** When this tick's slice ends; undefined before anything ran in it. */
  #endsMs: number | undefined;
  /** Pending jobs by peer; the peer that is next comes first. */
  readonly #waiting = new Map<string, Job[]>();
  #jobs = 0;
  /** Steps that are scheduled: each is an immediate of its own, so that promises that a job resolves are followed up within the slice. */
  #armed = 0;
  /** The peer that entered in this step and has not run its job yet. */
  #entered: string | undefined;
  #spentMs = 0;
  #resting = false;

  /** `restMs` returns the pause after a slice that left something undone; 0 means none. */
  constructor(sliceMs: number | (() => number), restMs: () => number = () => 0) {
    this.#sliceMs = typeof sliceMs === "number" ? () => sliceMs : sliceMs;
    this.#restMs = restMs;
  }

  /** True if work would run at once. */
  get open(): boolean {
    if (this.#jobs > 0) return false;
    if (this.#endsMs !== undefined) return performance.now() < this.#endsMs;
    this.#begin();
    return true;
  }

  /**
   * Runs `work` at once while the slice lasts or if the peer has just entered, else in a later tick. A peer with more work calls again
   * afterwards, since one job of a peer at a time is fair.
   */
  run<T>(peer: string, work: () => T): T | Promise<T> {
    const entered = this.#entered === peer;
    if (entered) this.#entered = undefined;
    if (entered || this.open) return this.timed(work);
    return new Promise<T>((resolve, reject) => {
      this.#wait(peer, () => {
        try {
          resolve(this.timed(work));
        } catch (error) {
          reject(error);
        }
      });
    });
  }

  /** Waits until the peer is due (undefined: now). What the peer receives then, and runs right away, counts as one job. */
  enter(peer: string): Promise<void> | undefined {
    if (this.open) return undefined;
    return new Promise((resolve) => {
      this.#wait(peer, () => {
        this.#entered = peer;
        resolve();
      });
    });
  }

  /** Measures the time that `work` takes. */
  timed<T>(work: () => T): T {
    const from = performance.now();
    try {
      return work();
    } finally {
      this.#spentMs += performance.now() - from;
    }
  }

  /** Returns the time that all work took since the last call. */
  takeSpentMs(): number {
    const spentMs = this.#spentMs;
    this.#spentMs = 0;
    return spentMs;
  }

  #wait(peer: string, job: Job): void {
    const queue = this.#waiting.get(peer);
    if (queue === undefined) this.#waiting.set(peer, [job]);
    else queue.push(job);
    this.#jobs++;
    this.#arm();
  }

  #arm(): void {
    if (this.#resting || this.#armed >= Math.min(this.#jobs, MAX_STEPS)) return;
    this.#armed++;
    setImmediate(this.#step);
  }

  #begin(): void {
    this.#endsMs = performance.now() + this.#sliceMs();
    // This is the first immediate of the next tick.
    setImmediate(this.#end);
  }

  readonly #end = (): void => {
    this.#entered = undefined;
    const restMs = this.#jobs > 0 ? this.#restMs() : 0;
    // The slice stays over until the pause ends.
    this.#resting = restMs > 0;
    if (this.#resting) setTimeout(this.#rested, restMs);
    else this.#endsMs = undefined;
  };

  readonly #rested = (): void => {
    this.#endsMs = undefined;
    this.#resting = false;
    while (this.#armed < Math.min(this.#jobs, MAX_STEPS)) this.#arm();
  };

  readonly #step = (): void => {
    this.#armed--;
    this.#entered = undefined;
    if (this.#jobs === 0 || this.#resting) return;
    // The first step of a tick always runs a job, however short its slice is.
    if (this.#endsMs === undefined) this.#begin();
    else if (performance.now() >= this.#endsMs) {
      this.#arm();
      return;
    }
    const [peer, queue] = this.#waiting.entries().next().value as [string, Job[]];
    this.#waiting.delete(peer);
    const job = queue.shift() as Job;
    if (queue.length > 0) this.#waiting.set(peer, queue);
    this.#jobs--;
    this.#arm();
    job();
  };
}
