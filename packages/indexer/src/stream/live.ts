// Takes in a publisher's live messages, a few each time the intake admits the publisher; the rest is not read from the socket.
import type { Intake } from "../index/intake.ts";
import type { LiveSocket } from "../zmtp/listeners.ts";

/** The number of messages of one publisher in one go while others wait. */
const MAX_AT_ONCE = 8;

export type Receiving = {
  readonly key: string;
  readonly intake: Pick<Intake, "run">;
  readonly signal: AbortSignal;
  /** Takes a message in; returns true if there is no capacity for it and it should be offered once more. */
  take(frames: readonly Buffer[], again: boolean): boolean;
  /** Resolves when there may be capacity. */
  capacity(): Promise<void>;
  onFailed(error: Error): void;
};

export class LiveReceiver {
  readonly #socket: Pick<LiveSocket, "front" | "shift">;
  readonly #receiving: Receiving;
  /** Resolves when all messages that are there are taken in. */
  ended: Promise<void> = Promise.resolve();
  #running = false;
  #full = false;

  constructor(socket: Pick<LiveSocket, "front" | "shift">, receiving: Receiving) {
    this.#socket = socket;
    this.#receiving = receiving;
  }

  /** Call this when messages came; it takes them in at once if the intake permits. */
  begin(): void {
    if (this.#running || this.#receiving.signal.aborted) return;
    this.#running = true;
    this.ended = this.#run();
  }

  async #run(): Promise<void> {
    const { key, intake, signal, capacity, onFailed } = this.#receiving;
    try {
      for (let more = true; more && !signal.aborted; ) {
        const later = intake.run(key, () => {
          more = this.#step();
        });
        if (later !== undefined) await later;
        if (this.#full) await capacity();
      }
    } catch (error) {
      onFailed(error as Error);
    } finally {
      this.#running = false;
    }
  }

  /** Takes a few messages in, and returns whether there may be more. */
  #step(): boolean {
    const { signal, take } = this.#receiving;
    for (let n = 0; n < MAX_AT_ONCE && !signal.aborted; n++) {
      const frames = this.#socket.front();
      if (frames === undefined) return false;
      this.#full = take(frames, this.#full);
      if (this.#full) return true;
      this.#socket.shift();
    }
    return true;
  }
}
