// Takes in what a publisher sends live: some messages at a time, when the intake has a turn for its publisher; what waits is not read further.
import type { Intake } from "./intake.ts";
import type { ZmtpSocket } from "./zmtp/socket.ts";

/** Messages of one publisher in one go, where others wait. */
const MOST_IN_A_TURN = 8;

export type Receiving = {
  readonly key: string;
  readonly intake: Pick<Intake, "run">;
  readonly signal: AbortSignal;
  /** Takes a message in; true where there is no room for it, and it may be tried once more. */
  take(frames: readonly Buffer[], again: boolean): boolean;
  /** Until there may be room. */
  room(): Promise<void>;
  onFailed(error: Error): void;
};

export class LiveReceiver {
  readonly #socket: Pick<ZmtpSocket, "front" | "shift">;
  readonly #receiving: Receiving;
  /** Until all that is there is taken in. */
  ended: Promise<void> = Promise.resolve();
  #running = false;
  #full = false;

  constructor(socket: Pick<ZmtpSocket, "front" | "shift">, receiving: Receiving) {
    this.#socket = socket;
    this.#receiving = receiving;
  }

  /** To be called when messages came; takes them in at once where the intake lets it. */
  begin(): void {
    if (this.#running || this.#receiving.signal.aborted) return;
    this.#running = true;
    this.ended = this.#run();
  }

  async #run(): Promise<void> {
    const { key, intake, signal, room, onFailed } = this.#receiving;
    try {
      for (let more = true; more && !signal.aborted; ) {
        const later = intake.run(key, () => {
          more = this.#step();
        });
        if (later !== undefined) await later;
        if (this.#full) await room();
      }
    } catch (error) {
      onFailed(error as Error);
    } finally {
      this.#running = false;
    }
  }

  /** Whether more may be there. */
  #step(): boolean {
    const { signal, take } = this.#receiving;
    for (let n = 0; n < MOST_IN_A_TURN && !signal.aborted; n++) {
      const frames = this.#socket.front();
      if (frames === undefined) return false;
      this.#full = take(frames, this.#full);
      if (this.#full) return true;
      this.#socket.shift();
    }
    return true;
  }
}
