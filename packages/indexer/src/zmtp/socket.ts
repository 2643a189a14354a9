// A ZMTP socket: connections to all of its endpoints, dialled again when they end, or those that peers make to an address that it listens
// on.
import { createServer, type NetConnectOpts, type Server, type Socket } from "node:net";
import { Wire, type WireOwner } from "@svc/kit/proxy/wire.ts";
import type { Endpoint } from "../registrations/register-input.ts";
import { Peer, type SocketType } from "./peer.ts";

/** The pause between two dials: it doubles until a connection has lasted as long as the longest pause. */
const FIRST_WAIT_MS = 100;
const LONGEST_WAIT_MS = 1000;
/** The maximum number of peers that connect to one of our addresses; further ones are rejected. */
const MAX_ACCEPTED = 64;

export type SocketOptions = {
  readonly type: SocketType;
  readonly endpoints: readonly Endpoint[];
  readonly maxMessageBytes: number;
  readonly heartbeatMs?: number;
  readonly handshakeMs?: number;
  onReady?(peer: Peer): void;
  /** Called when messages may be available again. */
  onReadable(): void;
  /** A ready connection ended; `broken`: this side ended it, for the reason given. */
  onLost?(peer: Peer, why: string, broken: boolean): void;
  /** A connection failed before it was ready: no one is there, or the peer does not speak ZMTP (`broken`). */
  onFailed?(address: string, why: string, broken: boolean): void;
};

export class ZmtpSocket {
  readonly #options: SocketOptions;
  readonly #peers = new Set<Peer>();
  /** The peers with messages; one that has delivered a message goes behind the others. */
  readonly #readable = new Set<Peer>();
  readonly #servers: Server[] = [];
  readonly #timers = new Set<NodeJS.Timeout>();
  closed = false;

  constructor(options: SocketOptions) {
    this.#options = options;
  }

  get connected(): boolean {
    for (const peer of this.#peers) if (peer.isReady) return true;
    return false;
  }

  /** Starts to dial, which continues in the background, or listens; only listening can fail. */
  async open(): Promise<void> {
    for (const { address, binds } of this.#options.endpoints)
      if (binds) await this.#listen(address);
      else this.#dial(address, FIRST_WAIT_MS);
  }

  /** Returns the first message that is there, valid until the next one comes or `shift`. */
  front(): readonly Buffer[] | undefined {
    for (const peer of this.#readable) {
      const frames = peer.front();
      if (frames !== undefined) return frames;
      this.#readable.delete(peer);
    }
    return undefined;
  }

  /** Drops the first message of a peer (default: the peer of `front`). The next message then comes from another peer, if one has any. */
  shift(peer?: Peer): void {
    const [first] = peer === undefined ? this.#readable : [peer];
    if (first === undefined) return;
    first.shift();
    if (this.#readable.size === 1 || !this.#readable.delete(first)) return;
    this.#readable.add(first);
  }

  /** The peers that may have messages, the one that waited longest first. */
  get readable(): ReadonlySet<Peer> {
    return this.#readable;
  }

  /** The peer has no further message now. */
  exhausted(peer: Peer): void {
    this.#readable.delete(peer);
  }

  /** Sends to all ready peers. */
  send(frames: readonly Buffer[]): void {
    for (const peer of this.#peers) if (peer.isReady) peer.send(frames);
  }

  close(): void {
    this.closed = true;
    for (const timer of this.#timers) clearTimeout(timer);
    for (const server of this.#servers) server.close();
    for (const peer of this.#peers) peer.close();
    this.#readable.clear();
  }

  #dial(address: string, waitMs: number): void {
    const again = (peer: Peer): void => {
      if (this.closed) return;
      const lasted = peer.readySinceMs > 0 && performance.now() - peer.readySinceMs >= LONGEST_WAIT_MS;
      const timer = setTimeout(
        () => {
          this.#timers.delete(timer);
          this.#dial(address, Math.min(LONGEST_WAIT_MS, lasted ? FIRST_WAIT_MS : 2 * waitMs));
        },
        lasted ? FIRST_WAIT_MS : waitMs,
      );
      this.#timers.add(timer);
    };
    this.#add(address, (owner) => Wire.dial(owner, targetOf(address)), again);
  }

  async #listen(address: string): Promise<void> {
    const server = createServer({ pauseOnConnect: true, noDelay: true }, (accepted: Socket) => {
      accepted.on("error", () => {});
      if (this.closed || this.#peers.size >= MAX_ACCEPTED) accepted.destroy();
      else this.#add(address, (owner) => Wire.adopt(owner, accepted));
    });
    this.#servers.push(server);
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen(targetOf(address), resolve);
    });
    server.removeAllListeners("error").on("error", () => {}); // an accept failed; only that connection is affected
  }

  #add(address: string, open: (owner: WireOwner) => Wire, onEnd?: (peer: Peer) => void): void {
    const { type, maxMessageBytes, heartbeatMs, handshakeMs, onReady, onReadable, onLost, onFailed } = this.#options;
    const peer = new Peer(
      address,
      {
        type,
        maxMessageBytes,
        ...(heartbeatMs === undefined ? {} : { heartbeatMs }),
        ...(handshakeMs === undefined ? {} : { handshakeMs }),
        onReady: (ready) => onReady?.(ready),
        onReadable: (readable) => {
          this.#readable.add(readable);
          onReadable();
        },
        onClosed: (gone, why, broken) => {
          this.#peers.delete(gone);
          this.#readable.delete(gone);
          if (this.closed) return;
          if (gone.readySinceMs > 0) onLost?.(gone, why, broken);
          else onFailed?.(address, why, broken);
          onEnd?.(gone);
        },
      },
      open,
    );
    this.#peers.add(peer);
  }
}

/** Parses `tcp://HOST:PORT` or `ipc://PATH`; an `ipc://@NAME` has no file. */
function targetOf(address: string): NetConnectOpts & { host?: string } {
  if (address.startsWith("ipc://")) return { path: address.slice("ipc://".length).replace(/^@/, "\0") };
  const colon = address.lastIndexOf(":");
  const host = address.slice("tcp://".length, colon).replace(/^\[(.*)\]$/, "$1");
  return { host: host === "*" ? "0.0.0.0" : host, port: Number(address.slice(colon + 1)) };
}
