// One connection to a peer: greeting, handshake, then messages on demand; the socket is read no further than that.
//
//   greeting ──64 bytes──▶ handshake ──READY──▶ ready ──┐
//       └── late, or another mechanism ──┴── broken rules, silence, too large a message, its end ──▶ closed

import { ByteBuffer } from "@svc/kit/byte-buffer.ts";
import { HELD, TURN, type Wire, type WireOwner } from "@svc/kit/proxy/wire.ts";
import { Semaphore } from "@svc/kit/semaphore.ts";
import { COMMAND_FOUND, Decoder, MESSAGE, NOTHING } from "./decoder.ts";
import { command, GREETING_BYTES, greeting, message, problemOfGreeting, properties, readCommand, readProperties, takesCommands } from "./wire-format.ts";

/** The time from the dial to the end of the handshake. */
const HANDSHAKE_MS = 10_000;
/** After this much silence a peer is pinged, and after three times as much the connection ends. */
const HEARTBEAT_MS = 10_000;
const MAX_SILENT_BEATS = 3;
/** The number of heartbeats within which a message that began must be complete. */
const MAX_CUT_BEATS = 6;
/** The bound of our answers that a peer does not read. */
const MAX_UNREAD_BYTES = 64 * 1024;
const MAX_PING_CONTEXT_BYTES = 16;
/** Messages above this size are assembled a few at a time: each may take as much as the maximum. */
const LARGE_BYTES = 64 * 1024;
const largeMessages = new Semaphore(4);

export type SocketType = "SUB" | "DEALER";
const partners: Readonly<Record<SocketType, readonly string[]>> = { SUB: ["PUB", "XPUB"], DEALER: ["ROUTER", "DEALER", "REP"] };

export type PeerOptions = {
  readonly type: SocketType;
  readonly maxMessageBytes: number;
  readonly heartbeatMs?: number;
  readonly handshakeMs?: number;
  onReady(peer: Peer): void;
  /** Messages may be there: `front` has the first. */
  onReadable(peer: Peer): void;
  /** `broken`: this side ended the connection, for the reason given. */
  onClosed(peer: Peer, why: string, broken: boolean): void;
};

export class Peer implements WireOwner {
  readonly address: string;
  readonly #options: PeerOptions;
  readonly #wire: Wire;
  readonly #decoder: Decoder;
  readonly #start = new ByteBuffer();
  #phase: "greeting" | "handshake" | "ready" | "closed" = "greeting";
  #takesCommands = false;
  #broken = "";
  #handshake: NodeJS.Timeout;
  #beat: NodeJS.Timeout | undefined;
  #silentBeats = 0;
  #cutBeats = 0;
  #leaveLarge: (() => void) | undefined;
  readonly #gone = new AbortController();
  readySinceMs = 0;

  constructor(address: string, options: PeerOptions, open: (owner: WireOwner) => Wire) {
    this.address = address;
    this.#options = options;
    this.#decoder = new Decoder(options.maxMessageBytes);
    this.#wire = open(this);
    const handshakeMs = options.handshakeMs ?? HANDSHAKE_MS;
    this.#handshake = setTimeout(() => this.#break(`the peer's handshake did not end within ${handshakeMs} ms`), handshakeMs);
    this.#wire.socket.setKeepAlive(true, HEARTBEAT_MS);
    this.#wire.socket.write(greeting);
  }

  get isReady(): boolean {
    return this.#phase === "ready";
  }

  /** Returns the frames of the first unshifted message, or undefined if there is none. They are valid until `shift` or until more bytes come. */
  front(): readonly Buffer[] | undefined {
    for (;;) {
      const found = this.#decoder.front();
      if (found === MESSAGE && this.#phase !== "handshake") return this.#decoder.frames;
      if (found === MESSAGE) this.#break("the peer sent a message where READY was expected");
      if (found === NOTHING) break;
      if (found === COMMAND_FOUND) this.#command(this.#decoder.frames[0] as Buffer);
      if (this.#phase === "closed") return undefined;
      this.#decoder.shift();
    }
    if (this.#decoder.problem !== "") this.#break(this.#decoder.problem);
    else this.#resume();
    return undefined;
  }

  shift(): void {
    this.#decoder.shift();
  }

  send(frames: readonly Buffer[]): void {
    this.#write(message(frames));
  }

  close(): void {
    this.#wire.destroy();
  }

  onBytes(bytes: Buffer, length: number): void {
    if (this.#phase === "closed") return;
    this.#silentBeats = 0;
    if (this.#phase === "greeting") {
      this.#greeted(bytes, length);
      return;
    }
    this.#decoder.feed(bytes, length);
    this.#offer();
  }

  onEnd(): void {
    this.#wire.end();
  }

  onClose(error: NodeJS.ErrnoException | undefined): void {
    this.#phase = "closed";
    clearTimeout(this.#handshake);
    clearInterval(this.#beat);
    this.#leaveLarge?.();
    this.#gone.abort();
    this.#options.onClosed(this, this.#broken || error?.message || "the peer ended the connection", this.#broken !== "");
  }

  onDrain(): void {
    // The bound of what a peer does not read is checked in #write.
  }

  /** Offers the messages that are there. If some remain, they wait, and the socket is not read. */
  #offer(): void {
    if (this.#phase === "handshake") this.front();
    if (this.#phase !== "ready") return;
    this.#options.onReadable(this);
    if (this.#decoder.isEmpty || this.#wire.closed) return;
    this.#decoder.stow();
    this.#wire.pause(HELD);
  }

  #greeted(bytes: Buffer, length: number): void {
    const end = Math.min(length, GREETING_BYTES - this.#start.length);
    this.#start.append(bytes, 0, end);
    const problem = problemOfGreeting(this.#start.bytes);
    if (problem !== "") {
      this.#break(problem);
      return;
    }
    if (this.#start.length < GREETING_BYTES) return;
    this.#takesCommands = takesCommands(this.#start.bytes);
    this.#start.clear();
    this.#phase = "handshake";
    const { type } = this.#options;
    this.#write(command("READY", properties(type === "DEALER" ? { "Socket-Type": type, Identity: "" } : { "Socket-Type": type })));
    if (end === length) return;
    this.#decoder.feed(bytes.subarray(end), length - end);
    this.#offer();
  }

  #command(body: Buffer): void {
    const found = readCommand(body);
    if (found === undefined) {
      this.#break("the peer sent a command without a name");
      return;
    }
    const { name, data } = found;
    if (this.#phase === "handshake") this.#shaken(name, data);
    else if (name === "PING" && data.length >= 2 && data.length <= 2 + MAX_PING_CONTEXT_BYTES) this.#write(command("PONG", data.subarray(2)));
    else if (name === "ERROR") this.#break(`the peer says: ${data.toString("latin1", 1)}`);
    else if (name !== "PONG") this.#break(`the peer sent the command ${JSON.stringify(name.slice(0, 20))} out of place`);
  }

  #shaken(name: string, data: Buffer): void {
    if (name === "ERROR") {
      this.#break(`the peer refuses the connection: ${data.toString("latin1", 1)}`);
      return;
    }
    if (name !== "READY") {
      this.#break(`the peer sent the command ${JSON.stringify(name.slice(0, 20))} where READY was expected`);
      return;
    }
    const socketType = readProperties(data)?.get("socket-type");
    const wanted = partners[this.#options.type];
    if (socketType === undefined || !wanted.includes(socketType)) {
      this.#break(`the peer is a socket of type ${socketType ?? "(none)"}; expected ${wanted.join(" or ")}`);
      return;
    }
    clearTimeout(this.#handshake);
    this.#phase = "ready";
    this.readySinceMs = performance.now();
    this.#beat = setInterval(() => this.#beats(), this.#options.heartbeatMs ?? HEARTBEAT_MS).unref();
    // Subscribes to everything, in the form that the peer knows.
    if (this.#options.type === "SUB") this.#write(this.#takesCommands ? command("SUBSCRIBE") : message([Buffer.of(1)]));
    this.#options.onReady(this);
  }

  /** Reads on after all kept bytes are consumed, unless the message that is cut must wait until it may be assembled. */
  #resume(): void {
    if (this.#phase === "handshake") {
      if (this.#decoder.wantedBytes > LARGE_BYTES) this.#break("the peer sent a message where READY was expected");
      return;
    }
    const isLarge = this.#decoder.wantedBytes > LARGE_BYTES;
    if (!isLarge) this.#leaveLarge?.();
    else if (this.#leaveLarge === undefined) this.#waitForLarge();
    this.#wire.resume(HELD);
  }

  #waitForLarge(): void {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#leaveLarge = () => {
      this.#leaveLarge = undefined;
      this.#wire.resume(TURN);
      resolve();
    };
    this.#wire.pause(TURN);
    void largeMessages.within(this.#gone.signal, () => {
      this.#wire.resume(TURN);
      return promise;
    });
  }

  #beats(): void {
    // While we do not read the socket, silence says nothing about the peer.
    if (this.#wire.isPaused(HELD) || this.#wire.isPaused(TURN)) {
      this.#silentBeats = this.#cutBeats = 0;
      return;
    }
    this.#cutBeats = this.#decoder.wantedBytes > 0 ? this.#cutBeats + 1 : 0;
    if (this.#cutBeats >= MAX_CUT_BEATS) {
      this.#break("the peer began a message and did not end it");
      return;
    }
    // Peers that know no heartbeats are checked by the kernel alone.
    if (!this.#takesCommands) return;
    this.#silentBeats++;
    if (this.#silentBeats > MAX_SILENT_BEATS) this.#break("the peer answers no heartbeats");
    else if (this.#silentBeats > 1) this.#write(command("PING", Buffer.alloc(2)));
  }

  #write(bytes: Buffer): void {
    if (this.#wire.closed) return;
    if (this.#wire.socket.writableLength > MAX_UNREAD_BYTES) {
      this.#break("the peer does not read what it is sent");
      return;
    }
    this.#wire.socket.write(bytes);
  }

  #break(why: string): void {
    if (this.#phase === "closed") return;
    this.#broken = why;
    this.#phase = "closed";
    this.#wire.destroy();
  }
}
