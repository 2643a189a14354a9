// A connection that another HTTP server of this process continues; it stays counted and bounded by the server that accepted it.
import { Duplex } from "node:stream";
import { HELD, type Wire } from "../proxy/wire.ts";
import { IDLE_MS, LINGER_MS } from "./limits.ts";

export class HandedStream extends Duplex {
  readonly remoteAddress: string | undefined;
  readonly remotePort: number | undefined;
  readonly #wire: Wire;
  #movedMs = performance.now();

  constructor(wire: Wire) {
    super();
    this.#wire = wire;
    this.remoteAddress = wire.socket.remoteAddress;
    this.remotePort = wire.socket.remotePort;
    this.on("error", () => {});
  }

  /** Takes bytes of the wire, which are valid during this call only. */
  receive(bytes: Buffer): void {
    this.#movedMs = performance.now();
    if (!this.destroyed && !this.push(Buffer.from(bytes))) this.#wire.pause(HELD);
  }

  /** Ends a connection on which nothing moves, or whose client stays after the last answer. */
  sweep(nowMs: number): void {
    if (nowMs - this.#movedMs > (this.writableFinished ? LINGER_MS : IDLE_MS)) this.destroy();
  }

  override _read(): void {
    this.#wire.resume(HELD);
  }

  override _write(bytes: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#wire.socket.write(bytes, (error) => {
      this.#movedMs = performance.now();
      done(error);
    });
  }

  override _final(done: () => void): void {
    this.#wire.end();
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#wire.destroy();
    done(error);
  }
}
