// One TCP or unix connection of the proxy: reads into its own buffers, writes small pieces as text, and propagates backpressure.
import { readSync } from "node:fs";
import { connect, type NetConnectOpts, Socket } from "node:net";
import type { Duplex } from "node:stream";
import { TLSSocket } from "node:tls";
import type { Pace } from "./pace.ts";
import { ReadBuffer } from "./read-buffer.ts";

/** Receives a wire's bytes and its end. `bytes` is valid during the call only, since the buffer is reused afterwards. */
export interface WireOwner {
  onBytes(bytes: Buffer, length: number): void;
  /** The peer sends no more. */
  onEnd(): void;
  /** The connection is closed in both directions; `error` is set if it was not closed in order. */
  onClose(error: NodeJS.ErrnoException | undefined): void;
  /** The kernel has taken all written bytes. */
  onDrain(): void;
  onConnect?(): void;
}

/** A piece of this size shows that a wire transfers bulk. */
const bulkBytes = 32 * 1024;
/** Up to this size a piece is written as a latin1 string, which the kernel usually takes whole without a separate buffer. */
const textBytes = 8 * 1024;
/** Unsent bytes of one connection at which the other side is paused: this number, or its share of the bound for all connections. */
const behindBytes = 256 * 1024;
const leastBehindBytes = 16 * 1024;
const behindBytesOfAll = 256 * 1024 * 1024;
let wireCount = 0;

/** Bound on the rest of an answer that is read after a failed write; a longer one is cut off. */
const restBytes = 64 * 1024;

/** Reasons for not reading; reading resumes when none is left. */
export const BEHIND = 1;
export const HELD = 2;
export const SLOW = 4;
export const TURN = 8;
export const PACED = 16;

/** The address to connect to; a function opens the socket itself, with these options. */
export type Dial = NetConnectOpts | ((options: object) => Socket);

export class Wire {
  readonly socket: Socket;
  readonly #buffer = new ReadBuffer();
  #paused = 0;
  #error: NodeJS.ErrnoException | undefined;
  /** Set for a stream that is not a socket of the kernel: its bytes come in buffers of their own, and it may hold what is written to it. */
  #reset: (() => void) | undefined;
  closed = false;

  private constructor(owner: WireOwner, open: (onread: OnRead) => Socket) {
    this.socket = open({
      buffer: () => this.#buffer.next(),
      callback: (length, bytes) => {
        owner.onBytes(bytes, length);
        return true;
      },
    });
    this.socket.on("end", () => owner.onEnd());
    this.socket.on("drain", () => owner.onDrain());
    this.socket.on("error", (error) => {
      this.#error = error;
    });
    wireCount++;
    this.socket.on("close", () => {
      this.closed = true;
      wireCount--;
      this.#buffer.close();
      owner.onClose(this.#error);
    });
  }

  static dial(owner: WireOwner, where: Dial): Wire {
    const wire = new Wire(owner, (onread) => {
      const options = { noDelay: true, allowHalfOpen: true, onread };
      return typeof where === "function" ? where(options) : connect({ ...where, ...options } as NetConnectOpts);
    });
    const { socket } = wire;
    // A connection by TLS carries requests once the server's certificate is verified; after a failure it is destroyed already.
    if (socket instanceof TLSSocket) socket.on("secureConnect", () => socket.destroyed || owner.onConnect?.());
    else {
      socket.on("connect", () => owner.onConnect?.());
      wire.#readsAfterFailedWrites(owner);
    }
    return wire;
  }

  /**
   * A server may answer and close before it has the whole body. The resulting write error arrives before the answer is read, and would discard
   * the answer with the connection.
   */
  #readsAfterFailedWrites(owner: WireOwner): void {
    const { socket } = this;
    const destroy = socket._destroy.bind(socket);
    socket._destroy = (error: NodeJS.ErrnoException | null, done) => {
      const fd = (socket as unknown as { _handle: { fd?: number } | null })._handle?.fd ?? -1;
      if (error?.syscall === "write" && fd >= 0) {
        const rest = Buffer.allocUnsafe(restBytes);
        const length = readNow(fd, rest);
        if (length > 0) owner.onBytes(rest, length);
      }
      destroy(error, done);
    };
  }

  /**
   * Adopts an accepted connection into the proxy's own buffers: `onread` is available for dialled sockets only, and without it every read
   * allocates (measured: a tenth of the proxy's CPU). The accepted Socket object is left empty.
   */
  static adopt(owner: WireOwner, accepted: Socket): Wire {
    const carrier = accepted as unknown as { _handle: unknown };
    const handle = carrier._handle;
    carrier._handle = null;
    accepted.destroy();
    const wire = new Wire(owner, (onread) => new Socket({ handle, allowHalfOpen: true, onread } as unknown as ConstructorParameters<typeof Socket>[0]));
    wire.socket.resume();
    return wire;
  }

  /** Carries a connection that was decrypted or exists in memory only; `reset` ends it such that the peer notices. */
  static carry(owner: WireOwner, stream: Duplex, reset: () => void): Wire {
    const wire = new Wire(owner, () => stream as Socket);
    wire.#reset = reset;
    stream.on("data", (bytes: Buffer) => owner.onBytes(bytes, bytes.length));
    return wire;
  }

  /** Writes text of single-byte characters. */
  write(text: string): void {
    this.socket.write(text, "latin1");
  }

  /** Sends bytes that were just read by `source`, and pauses `source` when this side falls behind. */
  forward(bytes: Buffer, start: number, end: number, source: Wire): void {
    if (end <= start) return;
    if (end - start <= textBytes) this.socket.write(bytes.toString("latin1", start, end), "latin1");
    else if (source.#reset !== undefined) this.socket.write(bytes.subarray(start, end));
    else if (this.#reset === undefined && source.#buffer.canLend(bytes)) this.socket.write(bytes.subarray(start, end), source.#buffer.lend());
    else {
      this.socket.write(Buffer.from(bytes.subarray(start, end)));
      if (end - start >= bulkBytes) source.#buffer.enlarge();
    }
    if (this.isBehind) source.pause(BEHIND);
  }

  get isBehind(): boolean {
    return this.socket.writableLength >= Math.max(leastBehindBytes, Math.min(behindBytes, behindBytesOfAll / wireCount));
  }

  isPaused(reason: number): boolean {
    return (this.#paused & reason) !== 0;
  }

  pause(reason: number): void {
    if (this.#paused === 0) this.socket.pause();
    this.#paused |= reason;
  }

  resume(reason: number): void {
    if ((this.#paused & reason) === 0) return;
    this.#paused &= ~reason;
    if (this.#paused === 0 && !this.closed) this.socket.resume();
  }

  /** Pauses reading until `pace` allows more, so that backpressure reaches the sender and nothing is lost. */
  keepPace(pace: Pace, length: number): void {
    const waitMs = pace.take(length, performance.now());
    if (waitMs === 0 || this.isPaused(PACED)) return;
    this.pause(PACED);
    setTimeout(() => this.resume(PACED), waitMs);
  }

  /** Ends a bulk transfer. */
  settle(): void {
    this.#buffer.settle();
  }

  end(text?: string): void {
    if (text !== undefined) this.socket.write(text, "latin1");
    this.socket.end();
  }

  destroy(): void {
    this.socket.destroy();
  }

  /** Ends with a reset, so that the peer cannot take a part for the whole. */
  reset(): void {
    if (this.closed) return;
    if (this.#reset !== undefined) this.#reset();
    else if (this.socket.remoteFamily === undefined) this.socket.destroy();
    else this.socket.resetAndDestroy();
  }
}

type OnRead = { buffer: () => Buffer; callback: (length: number, bytes: Buffer) => boolean };

/** Reads the bytes that are available without waiting. */
function readNow(fd: number, into: Buffer): number {
  let length = 0;
  try {
    for (let got = 1; got > 0 && length < into.length; length += got) got = readSync(fd, into, length, into.length - length, null);
  } catch {
    // No more bytes are available, or the connection was reset.
  }
  return length;
}
