// Receives what a publisher sends live: a message at a time, when the intake has a turn for its publisher.
import type { Subscriber } from "zeromq";
import type { Intake } from "./intake.ts";

export type Receiving = {
  readonly key: string;
  readonly intake: Pick<Intake, "enter" | "run">;
  readonly signal: AbortSignal;
  /** Takes a message in; true where there is no room for it, and it may be tried once more. */
  take(frames: readonly Buffer[], again: boolean): boolean;
  /** Until there may be room. */
  room(): Promise<void>;
};

/** Until the socket is closed; fails as the socket does. */
export async function receiveLive(socket: Subscriber, { key, intake, signal, take, room }: Receiving): Promise<void> {
  // Not by its iterator, which makes two more promises a message.
  while (!socket.closed) {
    await intake.enter(key);
    const frames = await socket.receive();
    let full = false;
    const attempt = (): void => {
      full = !signal.aborted && take(frames, full);
    };
    await intake.run(key, attempt);
    while (full && !signal.aborted) {
      await room();
      await intake.run(key, attempt);
    }
  }
}
