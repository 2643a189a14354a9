// One TCP connection of a sandbox with an egress proxy: the node decides by its destination, and the thread dials it through the proxy.
import type { Socket } from "node:net";
import { dialThrough } from "../egress/socks5.ts";
import { readHello } from "./hello.ts";
import { readHost } from "./host-line.ts";
import type { Tunnel, TunnelKey } from "./messages.ts";
import { originalDestination } from "./original-destination.ts";

/** Clients of HTTP and HTTPS speak first, so these ports are where a name can be read. */
const NAMED_PORTS: ReadonlySet<number> = new Set([80, 443]);
const MAX_FIRST_BYTES = 64 * 1024;
const FIRST_BYTES_MS = 15_000;

export type TunnelParts = {
  readonly tunnel: (ask: TunnelKey) => Promise<Tunnel>;
  readonly note: (sandbox: string, key: Omit<TunnelKey, "sandbox">, why: string) => void;
};

export class TunnelConnection {
  readonly #parts: TunnelParts;
  readonly #socket: Socket;
  readonly #sandbox: string;
  readonly #abandoned = new AbortController();
  #key: TunnelKey | undefined;
  #way: string | undefined;

  constructor(parts: TunnelParts, socket: Socket, sandbox: string) {
    this.#parts = parts;
    this.#socket = socket;
    this.#sandbox = sandbox;
  }

  async serve(): Promise<void> {
    const socket = this.#socket;
    socket.setNoDelay(true);
    socket.once("close", () => this.#abandoned.abort());
    const { address, port } = originalDestination(socket);
    this.#key = { sandbox: this.#sandbox, address, port, name: undefined };
    let tunnel = await this.#parts.tunnel(this.#key);
    if (tunnel.verdict === "name") {
      const name = NAMED_PORTS.has(port) ? await nameOf(socket, port) : undefined;
      this.#key = { ...this.#key, name: name ?? null };
      tunnel = await this.#parts.tunnel(this.#key);
    }
    if (socket.destroyed) return;
    if (tunnel.verdict !== "dial") return this.#refuse(tunnel.verdict === "refuse" ? tunnel.why : "was refused: the node did not decide");
    this.#way = JSON.stringify(tunnel);
    try {
      const upstream = await dialThrough(tunnel.proxy, tunnel.host, port, this.#abandoned.signal);
      splice(socket, upstream);
    } catch (error) {
      if (!socket.destroyed) this.#refuse(`was refused: ${(error as Error).message}`);
    }
  }

  /** Ends the connection if its way is another one now. */
  async check(): Promise<void> {
    if (this.#way === undefined || this.#key === undefined || this.#socket.destroyed) return;
    const now = await this.#parts.tunnel(this.#key).catch(() => undefined);
    if (JSON.stringify(now) !== this.#way) this.destroy();
  }

  destroy(): void {
    this.#socket.resetAndDestroy();
  }

  #refuse(why: string): void {
    const { address = "", port = 0, name } = this.#key ?? {};
    this.#parts.note(this.#sandbox, { address, port, name }, why);
    this.destroy();
  }
}

/** Reads the name that a client's first bytes carry, and leaves them in the socket; undefined if there is none. */
async function nameOf(socket: Socket, port: number): Promise<string | undefined> {
  let bytes = Buffer.alloc(0);
  const endMs = performance.now() + FIRST_BYTES_MS;
  let found: string | undefined;
  while (bytes.length < MAX_FIRST_BYTES) {
    const chunk = await nextOf(socket, endMs - performance.now());
    if (chunk === undefined) break;
    bytes = Buffer.concat([bytes, chunk]);
    const read = port === 443 ? nameInHello(bytes) : readHost(bytes);
    if (read === "more") continue;
    found = read;
    break;
  }
  if (bytes.length > 0 && !socket.destroyed) socket.unshift(bytes);
  return found;
}

function nameInHello(bytes: Buffer): string | "more" | undefined {
  const hello = readHello(bytes);
  if (hello === "more") return "more";
  return hello === "other" ? undefined : hello.serverName;
}

function nextOf(socket: Socket, withinMs: number): Promise<Buffer | undefined> {
  return new Promise((resolve) => {
    const done = (chunk?: Buffer): void => {
      clearTimeout(timer);
      socket.off("data", done).off("end", onEnd).off("close", onEnd).pause();
      resolve(chunk);
    };
    const onEnd = (): void => done();
    const timer = setTimeout(onEnd, Math.max(0, withinMs));
    socket.on("data", done).on("end", onEnd).on("close", onEnd).resume();
  });
}

/** Passes bytes and ends in both directions, each direction as fast as its reader takes them. */
function splice(client: Socket, upstream: Socket): void {
  client.pipe(upstream);
  upstream.pipe(client);
  client.once("close", () => upstream.destroy());
  upstream.once("close", () => (upstream.readableEnded && client.writableFinished ? client.destroy() : client.destroySoon()));
}
