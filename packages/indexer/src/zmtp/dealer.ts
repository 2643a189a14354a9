// Sends a request to one endpoint and receives its answer message by message; it repeats the request on a new connection until the answer
// has begun.
import type { Endpoint } from "../registrations/register-input.ts";
import { ZmtpSocket } from "./socket.ts";

export type DealerOptions = { readonly endpoint: Endpoint; readonly maxMessageBytes: number; readonly timeoutMs: number };

export class Dealer {
  readonly #socket: ZmtpSocket;
  readonly #timeoutMs: number;
  #request: readonly Buffer[] | undefined;
  #begun = false;
  /** Why no further message comes. */
  #lost = "";
  /** Why there is no answer, as far as is known. */
  #trouble = "no answer came";
  #wake = (): void => undefined;

  constructor({ endpoint, maxMessageBytes, timeoutMs }: DealerOptions) {
    this.#timeoutMs = timeoutMs;
    this.#socket = new ZmtpSocket({
      type: "DEALER",
      endpoints: [endpoint],
      maxMessageBytes,
      onReady: (peer) => {
        if (this.#request !== undefined && !this.#begun) peer.send(this.#request);
      },
      onReadable: () => this.#wake(),
      onLost: (_peer, why) => {
        this.#trouble = why;
        // Another connection would not bring the rest of the answer.
        if (this.#begun) this.#end(why);
      },
      onFailed: (_address, why) => {
        this.#trouble = why;
      },
    });
  }

  get closed(): boolean {
    return this.#socket.closed;
  }

  open(): Promise<void> {
    return this.#socket.open();
  }

  /** Sends the request now, or when there is a connection. */
  request(frames: readonly Buffer[]): void {
    this.#request = frames;
    this.#socket.send(frames);
  }

  /** Returns the next message in memory of its own. It fails if none comes in time, or none can come any more. */
  async receive(): Promise<Buffer[]> {
    const untilMs = performance.now() + this.#timeoutMs;
    for (;;) {
      const frames = this.#socket.front();
      if (frames !== undefined) {
        const kept = frames.map((frame) => Buffer.from(frame));
        this.#begun = true;
        this.#socket.shift();
        return kept;
      }
      if (this.#lost !== "") throw new Error(this.#lost);
      const leftMs = untilMs - performance.now();
      if (leftMs <= 0) throw new Error(this.#trouble);
      await this.#readable(leftMs);
    }
  }

  close(): void {
    this.#end("the socket was closed");
    this.#socket.close();
  }

  #end(why: string): void {
    if (this.#lost === "") this.#lost = why;
    this.#wake();
  }

  #readable(withinMs: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.#wake(), withinMs);
      this.#wake = () => {
        clearTimeout(timer);
        this.#wake = () => undefined;
        resolve();
      };
    });
  }
}
