// Runs inside the namespace of outside.ts: serves on every address there, and records what it received.
import { createSocket, type RemoteInfo } from "node:dgram";
import { createServer as createHttpServer } from "node:http";
import { connect, createServer, type Server } from "node:net";
import { networkInterfaces } from "node:os";
import { type HttpsHost, serveHttps } from "./outside-https.ts";

export type Seen = {
  readonly kind: "http" | "https" | "tcp" | "udp" | "dns-udp" | "dns-tcp";
  readonly peer: string;
  readonly local: string;
  readonly text: string;
};
export type OutsideOrder = { order: "serve"; https: readonly HttpsHost[] } | { order: "seen" } | { order: "dial"; host: string; port: number };
export type OutsideReply = { reply: "ready" } | { reply: "dialled"; outcome: string } | { reply: "seen"; seen: Seen[] } | { reply: "failed"; error: string };

const MAX_SEEN = 10_000;
const DIAL_TIMEOUT_MS = 10_000;
const seen: Seen[] = [];
const note = (what: Seen): void => void (seen.length < MAX_SEEN && seen.push(what));

/** The ports are the same on every address. */
const ports = { http: 80, httpsEcho: 443, echo: 7, dns: 53 } as const;

function listen(server: Server, port: number): Promise<void> {
  return new Promise((resolve, reject) => server.once("error", reject).listen(port, "0.0.0.0", resolve));
}

type OnDatagram = (message: Buffer, from: RemoteInfo, answer: (message: Buffer) => void) => void;

/** Opens a socket per address, because a single one would answer from the wrong address. */
async function listenUdp(port: number, onDatagram: OnDatagram): Promise<void> {
  for (const { address, family } of Object.values(networkInterfaces()).flatMap((all) => all ?? [])) {
    if (family !== "IPv4") continue;
    const socket = createSocket("udp4");
    socket.on("message", (message, from) => onDatagram(message, from, (answer) => socket.send(answer, from.port, from.address)));
    await new Promise<void>((resolve) => socket.bind(port, address, () => resolve()));
  }
}

async function serve(https: readonly HttpsHost[]): Promise<void> {
  const http = createHttpServer((request, response) => {
    const { remoteAddress: peer = "", localAddress: local = "" } = request.socket;
    note({ kind: "http", peer, local, text: request.url ?? "" });
    response.setHeader("content-type", "application/json").end(`${JSON.stringify({ peer, local, path: request.url })}\n`);
  });
  await listen(http, ports.http);
  if (https.length > 0) await serveHttps(ports.httpsEcho, https, (text, peer) => note({ kind: "https", peer, local: "", text }));
  for (const port of https.length > 0 ? [ports.echo] : [ports.echo, ports.httpsEcho]) {
    const echo = createServer((socket) => {
      note({ kind: "tcp", peer: socket.remoteAddress ?? "", local: socket.localAddress ?? "", text: "" });
      socket.on("error", () => {});
      socket.pipe(socket);
    });
    await listen(echo, port);
  }
  await listenUdp(ports.echo, (message, from, answer) => {
    note({ kind: "udp", peer: from.address, local: "", text: message.toString() });
    answer(message);
  });
  await serveDns();
}

/**
 * Every name resolves to 8.8.8.8, except that `nothing.*` does not exist, `long.*` is truncated over UDP, and `silent.*` gets no answer.
 */
async function serveDns(): Promise<void> {
  await listenUdp(ports.dns, (query, from, answer) => {
    const name = nameOf(query);
    note({ kind: "dns-udp", peer: from.address, local: "", text: name });
    if (!name.startsWith("silent.")) answer(answerTo(query, name, name.startsWith("long.") ? "truncated" : "whole"));
  });
  const tcp = createServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", (framed) => {
      const query = framed.subarray(2);
      const name = nameOf(query);
      note({ kind: "dns-tcp", peer: socket.remoteAddress ?? "", local: socket.localAddress ?? "", text: name });
      const answer = answerTo(query, name, "whole");
      const length = Buffer.alloc(2);
      length.writeUInt16BE(answer.length);
      socket.end(Buffer.concat([length, answer]));
    });
  });
  await listen(tcp, ports.dns);
}

function nameOf(query: Buffer): string {
  const labels: string[] = [];
  for (let at = 12; (query[at] ?? 0) > 0; at += 1 + (query[at] ?? 0)) labels.push(query.toString("latin1", at + 1, at + 1 + (query[at] ?? 0)));
  return labels.join(".");
}

function answerTo(query: Buffer, name: string, size: "whole" | "truncated"): Buffer {
  const question = query.subarray(12, 12 + name.length + 2 + 4);
  const isAddress = question.readUInt16BE(question.length - 4) === 1 && !name.startsWith("nothing.") && size === "whole";
  const header = Buffer.alloc(12);
  query.copy(header, 0, 0, 2);
  header[2] = 0x81 | (size === "truncated" ? 0x02 : 0);
  header[3] = 0x80 | (name.startsWith("nothing.") ? 3 : 0);
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(isAddress ? 1 : 0, 6);
  // The record refers to the question's name: type A, class IN, 60 s, four bytes.
  const record = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 8, 8, 8, 8]);
  return Buffer.concat([header, question, isAddress ? record : Buffer.alloc(0)]);
}

function dial(host: string, port: number): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, timeout: DIAL_TIMEOUT_MS });
    socket.on("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    socket.on("timeout", () => resolve("timeout"));
    socket.on("connect", () => resolve("connected"));
    socket.on("connect", () => socket.destroy());
    socket.on("timeout", () => socket.destroy());
  });
}

const reply = (message: OutsideReply): void => void process.send?.(message);

process.on("message", (message: OutsideOrder) => {
  if (message.order === "seen") return reply({ reply: "seen", seen: seen.splice(0) });
  if (message.order === "dial") return void dial(message.host, message.port).then((outcome) => reply({ reply: "dialled", outcome }));
  serve(message.https).then(
    () => reply({ reply: "ready" }),
    (error: unknown) => reply({ reply: "failed", error: String(error) }),
  );
});
// The namespace ends with its only process, and its interface and the host's routes end with it.
process.on("disconnect", () => process.exit(0));
