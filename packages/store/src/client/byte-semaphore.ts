// A semaphore of bytes: callers wait in order until their bytes fit, and a single caller may exceed the limit when no other is in.

type Waiting = { readonly bytes: number; enter(): void };

export class ByteSemaphore {
  readonly #mostBytes: number;
  readonly #waiting: Waiting[] = [];
  #usedBytes = 0;

  constructor(mostBytes: number) {
    this.#mostBytes = mostBytes;
  }

  /** The caller releases the same number of bytes exactly once, with `leave`. */
  enter(bytes: number): Promise<void> {
    if (this.#waiting.length === 0 && this.#fits(bytes)) {
      this.#usedBytes += bytes;
      return Promise.resolve();
    }
    return new Promise((enter) => this.#waiting.push({ bytes, enter }));
  }

  leave(bytes: number): void {
    this.#usedBytes -= bytes;
    for (let next = this.#waiting[0]; next !== undefined && this.#fits(next.bytes); next = this.#waiting[0]) {
      this.#usedBytes += next.bytes;
      this.#waiting.shift();
      next.enter();
    }
  }

  #fits(bytes: number): boolean {
    return this.#usedBytes === 0 || this.#usedBytes + bytes <= this.#mostBytes;
  }
}
