// A peer whose every byte the test chooses: a server on a socket, with ZMTP's bytes written by hand and not by the code under test.
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";

const WAIT_MS = 30_000;

export const bytesOf = (...parts: (string | number | Buffer)[]): Buffer =>
  Buffer.concat(parts.map((part) => (typeof part === "number" ? Buffer.of(part) : typeof part === "string" ? Buffer.from(part, "latin1") : part)));

/** Returns a greeting of version 3 with these differences. */
export function greetingOf({ minor = 1, mechanism = "NULL", major = 3 }: { minor?: number; mechanism?: string; major?: number } = {}): Buffer {
  return bytesOf(0xff, "\0\0\0\0\0\0\0\0", 0x7f, major, minor, mechanism.padEnd(20, "\0"), 0, Buffer.alloc(31));
}

/** Returns the command READY of a socket of this type. */
export function readyOf(type: string): Buffer {
  const body = bytesOf(5, "READY", 11, "Socket-Type", 0, 0, 0, type.length, type);
  return bytesOf(4, body.length, body);
}

export const shortFrame = (flags: number, body: Buffer): Buffer => bytesOf(flags, body.length, body);

export function longHead(flags: number, size: bigint): Buffer {
  const head = Buffer.alloc(9);
  head[0] = flags | 2;
  head.writeBigUInt64BE(size, 1);
  return head;
}

/** The first bytes that every test's publisher sends. */
export const hello = bytesOf(greetingOf(), readyOf("PUB"));

export type RawPeer = {
  readonly address: string;
  readonly sockets: Socket[];
  /** The bytes received on the last connection. */
  received(): Buffer;
  [Symbol.asyncDispose](): Promise<void>;
};

/** Listens on a unix socket of its own; `greet` is called for each connection. */
export async function startRaw(greet: (socket: Socket, nth: number) => void): Promise<RawPeer> {
  const folder = mkdtempSync(join(tmpdir(), "zmtp-"));
  const sockets: Socket[] = [];
  let received: Buffer[] = [];
  const server = createServer((socket) => {
    received = [];
    const mine = received;
    socket.on("error", () => {}).on("data", (chunk: Buffer) => void mine.push(chunk));
    sockets.push(socket);
    greet(socket, sockets.length);
  });
  await new Promise<void>((resolve) => server.listen(join(folder, "peer"), resolve));
  return {
    address: `ipc://${join(folder, "peer")}`,
    sockets,
    received: () => Buffer.concat(received),
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

export async function eventually(what: string, holds: () => boolean, story: () => string = () => ""): Promise<void> {
  for (const until = performance.now() + WAIT_MS; !holds(); await delay(5))
    if (performance.now() > until) throw new Error(`not so within ${WAIT_MS} ms: ${what} ${story()}`);
}
