// DNS for sandboxes on the gateway address: questions go to the host's resolvers, within a rate and other limits per sandbox.
import { createSocket, type Socket as UdpSocket } from "node:dgram";
import { createServer, type Server, type Socket } from "node:net";
import { performance } from "node:perf_hooks";
import { setTimeout as sleep, setImmediate as yieldToLoop } from "node:timers/promises";
import { asFailure } from "@svc/contract/failures.ts";
import { type Rate, TokenBucket } from "@svc/kit/token-bucket.ts";
import { AAAA_TYPE, addressesIn, type Found, MAX_OPEN_SECONDS, nameAsked, SERVICE_TYPES, typeAsked } from "./answer.ts";
import { ask, type Connect, Frames, frame, type Transport } from "./forward.ts";
import { HEADER_BYTES, isResponse, opcodeOf, questionOf, refusal } from "./message.ts";
import type { Resolvers, Upstream } from "./resolvers.ts";
import { Shares } from "./shares.ts";

const QUERY_LIMITS = { perSandbox: 64, inAll: 1024, least: 4 };
const CONNECTION_LIMITS = { perSandbox: 8, inAll: 256, least: 1 };
const LISTEN_BACKLOG = 256;
/** A valid query is a name and options, and not longer than this. */
const MAX_QUERY_BYTES = 4096;
const CONNECTION_IDLE_MS = 10_000;
const MAX_REASON_LENGTH = 200;
/** The number of attempts to find a port that is free for UDP and TCP. */
const MAX_PORT_TRIES = 20;

export type DnsOptions = {
  /** The address to bind; `port` is tried first, so that a restart keeps it. */
  readonly address: string;
  readonly port: number;
  readonly resolvers: Resolvers;
  /** The rate of questions per sandbox. Beyond it datagrams are dropped, and connections are read more slowly. */
  readonly rate: Rate;
  /** Returns the sandbox with this address; undefined if none has it: nothing is answered then. */
  readonly askerAt: (address: string) => Asker | undefined;
};

/** The sandbox that asks, with its policy. */
export interface Asker {
  /** Returns why this name is not resolved, or undefined if it is. Names that are not host names come as undefined. */
  refuses(name: string | undefined): string | undefined;
  /** True if the name has rules by host: clients must then reach it by HTTPS over TCP, with its name in the handshake. */
  hasRules(name: string): boolean;
  /** Called for each refusal. */
  denied(name: string, transport: Transport, why: string): void;
  /** Called for each datagram dropped because of the rate. */
  dropped(): void;
  /** Returns the servers that alone answer this sandbox, and how to connect to them; undefined: the node's resolvers. @throws with the reason why none can be asked. */
  servers(): Promise<{ readonly upstreams: readonly Upstream[]; readonly through?: Connect } | undefined>;
  /** Called before an answer is sent; the addresses are open when it resolves. */
  resolved(name: string, found: readonly Found[]): Promise<void>;
}

export interface Dns {
  readonly port: number;
  /** Closes the connections of a sandbox that is gone. */
  forget(address: string): void;
  close(): Promise<void>;
}

export async function openDns(options: DnsOptions): Promise<Dns> {
  const stopping = new AbortController();
  const queries = new Shares(QUERY_LIMITS);
  const connections = new Shares(CONNECTION_LIMITS);
  const open = new Map<Socket, string>();
  const buckets = new Map<string, TokenBucket>();

  function bucketOf(sandbox: string): TokenBucket {
    let bucket = buckets.get(sandbox);
    if (bucket === undefined) buckets.set(sandbox, (bucket = new TokenBucket(options.rate, performance.now())));
    return bucket;
  }

  async function answer(transport: Transport, query: Buffer, sandbox: string): Promise<Buffer | undefined> {
    const asker = options.askerAt(sandbox);
    if (asker === undefined || query.length < HEADER_BYTES || isResponse(query)) return undefined;
    const name = nameAsked(query);
    const refuse = (why: string): Buffer => {
      // Resolvers ask for IPv4 and IPv6, and IPv6 is closed anyway, so one entry per look-up suffices.
      if (typeAsked(query) !== AAAA_TYPE) asker.denied(name ?? "", transport, why);
      return refusal(query, "REFUSED", why);
    };
    const why = asker.refuses(name);
    if (why !== undefined) return refuse(why);
    if (opcodeOf(query) !== 0) return refusal(query, "NOTIMP", "only queries are answered");
    if (questionOf(query) === undefined) return refusal(query, "FORMERR", "exactly one question is answered");
    if (name !== undefined && SERVICE_TYPES.includes(typeAsked(query)) && asker.hasRules(name))
      return refusal(query, "NOERROR", "this sandbox has rules for the host, which apply to HTTPS over TCP alone");
    if (!queries.enter(sandbox)) return refusal(query, "SERVFAIL", "too many queries of this sandbox wait for an answer");
    try {
      const own = await asker.servers();
      const upstreams = own?.upstreams ?? (await options.resolvers.current());
      const response = await ask(transport, upstreams, query, stopping.signal, own?.through);
      if (response === undefined)
        return refusal(query, "SERVFAIL", own === undefined ? "the host's resolvers do not answer" : "the servers of network.dnsServers do not answer");
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
    const asker = options.askerAt(from.address);
    if (asker === undefined) return;
    if (!bucketOf(from.address).take(performance.now())) return asker.dropped();
    const response = await answer("udp", query, from.address);
    // The sandbox and this server may be gone by now.
    if (response !== undefined && !stopping.signal.aborted) socket.send(response, from.port, from.address, () => {});
  }

  function onConnection(socket: Socket): void {
    const sandbox = socket.remoteAddress ?? "";
    socket.on("error", () => {});
    if (options.askerAt(sandbox) === undefined || !connections.enter(sandbox)) return void socket.destroy();
    open.set(socket, sandbox);
    socket.once("close", () => {
      open.delete(socket);
      connections.leave(sandbox);
    });
    socket.setTimeout(CONNECTION_IDLE_MS, () => socket.destroy());
    void converse(socket, sandbox).catch(() => socket.destroy());
  }

  /** Serves a connection's queries one after the other. Nothing is read while a query is answered, waits for a token, or its answer is not accepted. */
  async function converse(socket: Socket, sandbox: string): Promise<void> {
    const frames = new Frames(MAX_QUERY_BYTES);
    for await (const chunk of socket) {
      for (const query of frames.take(chunk as Buffer)) {
        await admitted(sandbox);
        const response = socket.destroyed ? undefined : await answer("tcp", query, sandbox);
        if (response === undefined) return void socket.destroy();
        if (!socket.write(frame(response))) await drained(socket);
      }
    }
  }

  async function admitted(sandbox: string): Promise<void> {
    const bucket = bucketOf(sandbox);
    while (!bucket.take(performance.now())) await sleep(bucket.waitMs(performance.now()), undefined, { signal: stopping.signal });
    // A refusal needs no I/O, so without this pause a long sequence of questions would delay all other sandboxes.
    await yieldToLoop();
  }

  const { udp, tcp, port } = await bind(options.address, options.port);
  udp.on("message", (query, from) => void onDatagram(udp, query, from));
  udp.on("error", () => {});
  tcp.on("connection", onConnection);
  return {
    port,
    forget(address) {
      buckets.delete(address);
      for (const [socket, sandbox] of open) if (sandbox === address) socket.destroy();
    },
    async close() {
      stopping.abort();
      for (const socket of open.keys()) socket.destroy();
      await Promise.all([new Promise<void>((done) => udp.close(() => done())), new Promise<void>((done) => tcp.close(() => done()))]);
    },
  };
}

function drained(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      socket.off("drain", done).off("close", done);
      resolve();
    };
    socket.on("drain", done).on("close", done);
  });
}

/** Binds one port for both transports. It is not 53, which may be in use on all addresses of the host. */
async function bind(address: string, wanted: number): Promise<{ udp: UdpSocket; tcp: Server; port: number }> {
  let failure: unknown;
  for (let attempt = 0; attempt < MAX_PORT_TRIES; attempt++) {
    const tcp = createServer();
    try {
      await new Promise<void>((resolve, reject) => {
        tcp.once("error", reject);
        tcp.listen({ host: address, port: attempt === 0 ? wanted : 0, backlog: LISTEN_BACKLOG }, resolve);
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
