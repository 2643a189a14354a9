// Sends one DNS question to the upstream servers, one after the other, over the transport that the sandbox used.

import { randomInt } from "node:crypto";
import { createSocket } from "node:dgram";
import { connect, isIPv6, type Socket } from "node:net";
import { answers, forDatagram, questionOf, withId } from "./message.ts";
import type { Upstream } from "./resolvers.ts";

export const UPSTREAM_TIMEOUT_MS = 2500;
/** A connection through a proxy is made in this time. */
const THROUGH_PROXY_MS = 10_000;
const MAX_MESSAGE_BYTES = 65_535;

export type Transport = "udp" | "tcp";

/** Connects to a server; `abandoned` ends the attempt. */
export type Connect = (upstream: Upstream, abandoned: AbortSignal) => Promise<Socket>;

/**
 * Returns the first upstream's answer under the query's own id; undefined if none answered in time. With `through`, every question goes over the
 * connections that it makes, whatever the sandbox used.
 */
export async function ask(
  transport: Transport,
  upstreams: readonly Upstream[],
  query: Buffer,
  signal: AbortSignal,
  through?: Connect,
): Promise<Buffer | undefined> {
  const question = questionOf(query);
  if (question === undefined) return undefined;
  let failure: unknown;
  for (const upstream of upstreams) {
    if (signal.aborted) return undefined;
    const connection =
      through === undefined
        ? undefined
        : await through(upstream, AbortSignal.any([signal, AbortSignal.timeout(THROUGH_PROXY_MS)])).catch((error: unknown) => void (failure = error));
    if (through !== undefined && connection === undefined) continue;
    // Every question gets a new id and port: sandboxes must not choose them, or they could forge answers.
    const id = randomInt(0x1_0000);
    const accepts = (response: Buffer): boolean => answers(response, id, question);
    const response = await (transport === "udp" && connection === undefined
      ? askUdp(upstream, withId(query, id), accepts, signal)
      : askTcp(connection ?? connect({ host: upstream.address, port: upstream.port }), withId(query, id), accepts, signal));
    if (response === undefined) continue;
    const answer = withId(response, query.readUInt16BE(0));
    return transport === "udp" && through !== undefined ? forDatagram(answer, question) : answer;
  }
  if (failure !== undefined) throw failure;
  return undefined;
}

type Accepts = (response: Buffer) => boolean;

function askUdp(upstream: Upstream, query: Buffer, accepts: Accepts, signal: AbortSignal): Promise<Buffer | undefined> {
  return new Promise((resolve) => {
    const socket = createSocket(isIPv6(upstream.address) ? "udp6" : "udp4");
    const finish = (response?: Buffer): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
      socket.removeAllListeners().on("error", () => {});
      socket.close();
      resolve(response);
    };
    const stop = (): void => finish();
    const timer = setTimeout(stop, UPSTREAM_TIMEOUT_MS);
    signal.addEventListener("abort", stop);
    socket.on("error", stop); // on a refusal the next server is asked at once
    socket.on("message", (response) => {
      if (accepts(response)) finish(response);
    });
    // On a connected socket the kernel accepts only this server's packets and reports its refusal.
    socket.connect(upstream.port, upstream.address, () => socket.send(query));
  });
}

function askTcp(socket: Socket, query: Buffer, accepts: Accepts, signal: AbortSignal): Promise<Buffer | undefined> {
  return new Promise((resolve) => {
    const frames = new Frames();
    const finish = (response?: Buffer): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
      socket.destroy();
      resolve(response);
    };
    const stop = (): void => finish();
    const timer = setTimeout(stop, UPSTREAM_TIMEOUT_MS);
    signal.addEventListener("abort", stop);
    socket.on("error", stop);
    socket.on("close", stop);
    // A socket of a proxy comes paused.
    socket.resume();
    socket.write(frame(query));
    socket.on("data", (chunk) => {
      for (const response of frames.take(chunk)) if (accepts(response)) finish(response);
    });
  });
}

export function frame(message: Buffer): Buffer {
  const framed = Buffer.allocUnsafe(2 + message.length);
  framed.writeUInt16BE(message.length, 0);
  message.copy(framed, 2);
  return framed;
}

/** Splits a TCP stream into messages, each preceded by its length; buffers at most one message. */
export class Frames {
  readonly #maxBytes: number;
  #rest: Buffer = Buffer.alloc(0);

  constructor(maxBytes = MAX_MESSAGE_BYTES) {
    this.#maxBytes = maxBytes;
  }

  /** @throws when the announced length exceeds the maximum. */
  *take(chunk: Buffer): Generator<Buffer> {
    let rest = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    while (rest.length >= 2) {
      const length = rest.readUInt16BE(0);
      if (length > this.#maxBytes) throw new RangeError(`a DNS message of ${length} bytes; the maximum is ${this.#maxBytes}`);
      if (rest.length < 2 + length) break;
      yield rest.subarray(2, 2 + length);
      rest = rest.subarray(2 + length);
    }
    // Copies the remainder: a slice would keep the whole chunk in memory for a few bytes.
    this.#rest = Buffer.from(rest);
  }
}
