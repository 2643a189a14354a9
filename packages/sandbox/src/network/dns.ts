// DNS for sandboxes on the gateway address: questions go to the host's resolvers, within bounds per sandbox and in all.
import { createSocket, type Socket as UdpSocket } from "node:dgram";
import { createServer, type Server, type Socket } from "node:net";
import { asFailure } from "@svc/contract/failures.ts";
import { AAAA_TYPE, addressesIn, nameAsked, typeAsked } from "./dns-answer.ts";
import { ask, Frames, frame, type Transport } from "./dns-forward.ts";
import { HEADER_BYTES, isResponse, opcodeOf, questionOf, refusal } from "./dns-message.ts";
import { type Found, MAX_OPEN_SECONDS } from "./fence.ts";
import type { Resolvers } from "./resolvers.ts";

const MAX_QUERIES_PER_SANDBOX = 64;
const MAX_QUERIES = 1024;
const MAX_CONNECTIONS_PER_SANDBOX = 8;
const MAX_CONNECTIONS = 256;
const CONNECTION_IDLE_MS = 10_000;
const MAX_REASON_LENGTH = 200;
/** Tries for a port that is free for UDP and TCP alike. */
const MAX_PORT_TRIES = 20;

export type DnsOptions = {
  /** The address to bind; `port` is tried first, so that a restart keeps it. */
  readonly address: string;
  readonly port: number;
  readonly resolvers: Resolvers;
  /** The sandbox with this address; undefined: no sandbox has it, and nothing is answered. */
  readonly askerAt: (address: string) => Asker | undefined;
};

/** A sandbox as its questions meet it. */
export interface Asker {
  /** Why this name is not resolved for it; undefined: it is. A name that is no host name comes as undefined. */
  refuses(name: string | undefined): string | undefined;
  /** Told of each refusal. */
  denied(name: string, transport: Transport, why: string): void;
  /** Told of an answer before it is given; the addresses are open when this returns. */
  resolved(name: string, found: readonly Found[]): Promise<void>;
}

export interface Dns {
  readonly port: number;
  close(): Promise<void>;
}

export async function openDns(options: DnsOptions): Promise<Dns> {
  const stopping = new AbortController();
  const queries = new Counter(MAX_QUERIES_PER_SANDBOX, MAX_QUERIES);
  const connections = new Counter(MAX_CONNECTIONS_PER_SANDBOX, MAX_CONNECTIONS);
  const open = new Set<Socket>();

  async function answer(transport: Transport, query: Buffer, sandbox: string): Promise<Buffer | undefined> {
    const asker = options.askerAt(sandbox);
    if (asker === undefined || query.length < HEADER_BYTES || isResponse(query)) return undefined;
    const name = nameAsked(query);
    const refuse = (why: string): Buffer => {
      // Resolvers ask for both families at once, and IPv6 is closed anyway: one entry for one look-up.
      if (typeAsked(query) !== AAAA_TYPE) asker.denied(name ?? "", transport, why);
      return refusal(query, "REFUSED", why);
    };
    const why = asker.refuses(name);
    if (why !== undefined) return refuse(why);
    if (opcodeOf(query) !== 0) return refusal(query, "NOTIMP", "only queries are answered");
    if (questionOf(query) === undefined) return refusal(query, "FORMERR", "exactly one question is answered");
    if (!queries.enter(sandbox)) return refusal(query, "SERVFAIL", "too many queries of this sandbox wait for an answer");
    try {
      const upstreams = await options.resolvers.current();
      const response = await ask(transport, upstreams, query, stopping.signal);
      if (response === undefined) return refusal(query, "SERVFAIL", "the host's resolvers do not answer");
      // The policy may have been replaced while the resolvers were asked.
      const late = asker.refuses(name);
      if (late !== undefined) return refuse(late);
      if (name !== undefined) await asker.resolved(name, addressesIn(response, MAX_OPEN_SECONDS));
      return response;
    } catch (error) {
      return refusal(query, "SERVFAIL", asFailure(error).message.slice(0, MAX_REASON_LENGTH));
    } finally {
      queries.leave(sandbox);
    }
  }

  async function onDatagram(socket: UdpSocket, query: Buffer, from: { address: string; port: number }): Promise<void> {
    const response = await answer("udp", query, from.address);
    // The sandbox may be gone by now, and so may this server.
    if (response !== undefined && !stopping.signal.aborted) socket.send(response, from.port, from.address, () => {});
  }

  function onConnection(socket: Socket): void {
    const sandbox = socket.remoteAddress ?? "";
    socket.on("error", () => {});
    if (options.askerAt(sandbox) === undefined || !connections.enter(sandbox)) return void socket.destroy();
    open.add(socket);
    socket.once("close", () => {
      open.delete(socket);
      connections.leave(sandbox);
    });
    socket.setTimeout(CONNECTION_IDLE_MS, () => socket.destroy());
    void converse(socket, sandbox).catch(() => socket.destroy());
  }

  /** One query after the other: reading stops while one is being answered. */
  async function converse(socket: Socket, sandbox: string): Promise<void> {
    const frames = new Frames();
    for await (const chunk of socket) {
      for (const query of frames.take(chunk as Buffer)) {
        const response = await answer("tcp", query, sandbox);
        if (response === undefined) return void socket.destroy();
        socket.write(frame(response));
      }
    }
  }

  const { udp, tcp, port } = await bind(options.address, options.port);
  udp.on("message", (query, from) => void onDatagram(udp, query, from));
  udp.on("error", () => {});
  tcp.on("connection", onConnection);
  return {
    port,
    async close() {
      stopping.abort();
      for (const socket of open) socket.destroy();
      await Promise.all([new Promise<void>((done) => udp.close(() => done())), new Promise<void>((done) => tcp.close(() => done()))]);
    },
  };
}

/** Counts what is in progress per sandbox and in all. */
class Counter {
  readonly #perSandbox: number;
  readonly #inAll: number;
  readonly #counts = new Map<string, number>();
  #total = 0;

  constructor(perSandbox: number, inAll: number) {
    this.#perSandbox = perSandbox;
    this.#inAll = inAll;
  }

  enter(sandbox: string): boolean {
    const count = this.#counts.get(sandbox) ?? 0;
    if (count >= this.#perSandbox || this.#total >= this.#inAll) return false;
    this.#counts.set(sandbox, count + 1);
    this.#total++;
    return true;
  }

  leave(sandbox: string): void {
    const count = this.#counts.get(sandbox) ?? 0;
    if (count <= 1) this.#counts.delete(sandbox);
    else this.#counts.set(sandbox, count - 1);
    this.#total--;
  }
}

/** One port for both transports. A port of the node's own choice: 53 may be in use on all addresses of the host. */
async function bind(address: string, wanted: number): Promise<{ udp: UdpSocket; tcp: Server; port: number }> {
  let failure: unknown;
  for (let attempt = 0; attempt < MAX_PORT_TRIES; attempt++) {
    const tcp = createServer();
    try {
      await new Promise<void>((resolve, reject) => {
        tcp.once("error", reject);
        tcp.listen({ host: address, port: attempt === 0 ? wanted : 0, backlog: MAX_CONNECTIONS }, resolve);
      });
      const { port } = tcp.address() as { port: number };
      const udp = createSocket("udp4");
      await new Promise<void>((resolve, reject) => {
        udp.once("error", reject);
        udp.bind(port, address, () => resolve(udp.removeAllListeners("error") && undefined));
      });
      return { udp, tcp, port };
    } catch (error) {
      failure = error;
      tcp.close(() => {});
    }
  }
  throw failure;
}
