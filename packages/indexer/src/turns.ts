// Shares the event loop: work that comes in bulk gets a slice of each turn of it, and within the slice one peer after the other.

type Job = () => void;

export class Turns {
  readonly #sliceMs: number;
  /** When this turn's slice ends; undefined before anything ran in it. */
  #endsMs: number | undefined;
  /** What waits, by peer; the peer whose turn it is comes first. */
  readonly #waiting = new Map<string, Job[]>();

  constructor(sliceMs: number) {
    this.#sliceMs = sliceMs;
  }

  /** Whether work would run at once. */
  get open(): boolean {
    if (this.#waiting.size > 0) return false;
    if (this.#endsMs !== undefined) return performance.now() < this.#endsMs;
    this.#begin();
    return true;
  }

  /** Runs `work` at once while the slice lasts, else in a later turn. Who wants more calls again afterwards: one job of a peer at a time is fair. */
  run<T>(peer: string, work: () => T): T | Promise<T> {
    if (this.open) return work();
    return new Promise<T>((resolve, reject) => {
      const job = (): void => {
        try {
          resolve(work());
        } catch (error) {
          reject(error);
        }
      };
      const queue = this.#waiting.get(peer);
      if (queue === undefined) this.#waiting.set(peer, [job]);
      else queue.push(job);
    });
  }

  #begin(): void {
    this.#endsMs = performance.now() + this.#sliceMs;
    setImmediate(this.#next);
  }

  readonly #next = (): void => {
    this.#endsMs = undefined;
    if (this.#waiting.size === 0) return;
    this.#begin();
    const endsMs = this.#endsMs as number | undefined;
    do {
      const [peer, queue] = this.#waiting.entries().next().value as [string, Job[]];
      this.#waiting.delete(peer);
      const job = queue.shift() as Job;
      if (queue.length > 0) this.#waiting.set(peer, queue);
      job();
    } while (this.#waiting.size > 0 && performance.now() < (endsMs ?? 0));
  };
}
