// Two ends of a connection inside this process: what one writes the other reads, with backpressure, half-closes and resets as on a socket.
import { Duplex } from "node:stream";

/** Bytes that one side may have written before the other has read them. */
const WATER_BYTES = 64 * 1024;

class MemoryEnd extends Duplex {
  peer: MemoryEnd | undefined;
  /** The callback of a write that the peer has not taken yet. */
  #untaken: ((error?: Error) => void) | undefined;
  #hasEnded = false;

  constructor() {
    super({ allowHalfOpen: true, highWaterMark: WATER_BYTES, decodeStrings: true });
  }

  override _read(): void {
    this.peer?.taken();
  }

  override _write(chunk: Buffer, _encoding: string, callback: (error?: Error) => void): void {
    const { peer } = this;
    if (peer === undefined || peer.destroyed) {
      callback(Object.assign(new Error("the other end of this connection is closed"), { code: "EPIPE" }));
      return;
    }
    this.#untaken = callback;
    if (peer.push(chunk)) this.taken();
  }

  override _final(callback: () => void): void {
    this.#end();
    callback();
  }

  /** An orderly end reaches the peer as an end; an error reaches it as a reset, so that a part is never taken for the whole. */
  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    const { peer } = this;
    this.taken();
    peer?.lost();
    if (peer !== undefined && !peer.destroyed) {
      if (error === null) this.#end();
      else peer.destroy(Object.assign(new Error("the connection was reset"), { code: "ECONNRESET" }));
    }
    callback(error);
  }

  /** The peer has taken the last write. */
  taken(): void {
    const callback = this.#untaken;
    this.#untaken = undefined;
    callback?.();
  }

  /** The peer reads no more. */
  lost(): void {
    const callback = this.#untaken;
    this.#untaken = undefined;
    callback?.(Object.assign(new Error("the other end of this connection is closed"), { code: "EPIPE" }));
  }

  #end(): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.peer?.push(null);
  }
}

export function memoryPair(): readonly [Duplex, Duplex] {
  const [one, other] = [new MemoryEnd(), new MemoryEnd()];
  one.peer = other;
  other.peer = one;
  return [one, other];
}
