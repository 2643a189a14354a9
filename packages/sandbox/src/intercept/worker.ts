// The thread that opens TLS for hosts with rules and dials through egress proxies; see thread.ts for the node's side of it.
import assert from "node:assert/strict";
import { createServer, type Server, type Socket } from "node:net";
import { parentPort, workerData } from "node:worker_threads";
import { Shares } from "../dns/shares.ts";
import { trustedBy } from "../egress/trusted.ts";
import { Connection, type ConnectionParts } from "./connection.ts";
import { openHttp1 } from "./http1.ts";
import type { Certificate, FromIntercept, Headers, InterceptWorkerData, QuestionKind, Questions, ToIntercept } from "./messages.ts";
import { hasOriginalDestination } from "./original-destination.ts";
import { TunnelConnection, type TunnelParts } from "./tunnel.ts";

const CONNECTION_LIMITS = { perSandbox: 1024, inAll: 16_384, least: 16 };
const LISTEN_BACKLOG = 1024;
const MAX_CERTIFICATES = 1024;
const MAX_HEADERS = 4096;
/** Also without a change, values are read again after this time. */
const MAX_REUSE_MS = 3600_000;

const node = parentPort;
assert.ok(node !== null, "this file is the program of a worker thread");
const send = (message: FromIntercept): void => node.postMessage(message);
const { address, port, tunnelPort, authorities } = workerData as InterceptWorkerData;

const asked = new Map<number, { resolve: (answer: unknown) => void; reject: (error: Error) => void }>();
let nextCall = 1;
function ask<Kind extends QuestionKind>(kind: Kind, question: Questions[Kind]["ask"]): Promise<Questions[Kind]["answer"]> {
  const call = nextCall++;
  return new Promise((resolve, reject) => {
    asked.set(call, { resolve: resolve as (answer: unknown) => void, reject });
    send({ say: "question", call, kind, ask: question } as FromIntercept);
  });
}

const certificates = new Map<string, Certificate>();
async function certificate(name: string): Promise<Certificate> {
  const known = certificates.get(name);
  if (known !== undefined && known.untilMs > Date.now()) return known;
  const issued = await ask("certificate", { name });
  keep(certificates, name, issued, MAX_CERTIFICATES);
  return issued;
}

const headers = new Map<string, Headers>();
let generation = 0;
async function headersOf(sandbox: string, name: string): Promise<Headers> {
  const key = `${sandbox} ${name}`;
  const known = headers.get(key);
  if (known !== undefined && known.untilMs > Date.now()) return known;
  const asking = generation;
  const { headers: values, untilMs } = await ask("headers", { sandbox, name });
  const found = { headers: values, untilMs: Math.min(untilMs, Date.now() + MAX_REUSE_MS) };
  // A value that was replaced while it was read is used for this request alone.
  if (asking === generation) keep(headers, key, found, MAX_HEADERS);
  return found;
}
function dropHeaders(sandbox?: string): void {
  generation++;
  for (const key of headers.keys()) if (sandbox === undefined || key.startsWith(`${sandbox} `)) headers.delete(key);
}

/** Adds an entry to a bounded map, from which the oldest is removed. */
function keep<Value>(map: Map<string, Value>, key: string, value: Value, most: number): void {
  map.delete(key);
  map.set(key, value);
  for (const oldest of map.keys()) {
    if (map.size <= most) break;
    map.delete(oldest);
  }
}

const parts: ConnectionParts = {
  authorities: trustedBy(authorities),
  http1: openHttp1(),
  route: (sandbox, name) => ask("route", { sandbox, name }),
  certificate,
  headers: headersOf,
  note: (sandbox, name, to, why) => send({ say: "note", note: { sandbox, name, address: to, why } }),
};

const tunnels: TunnelParts = {
  tunnel: (key) => ask("tunnel", key),
  note: (sandbox, { name, address: to, port: toPort }, why) =>
    send({ say: "note", note: { sandbox, name: name ?? undefined, address: to, port: toPort, why } }),
};

type Served = Connection | TunnelConnection;
const connections = new Map<string, Set<Served>>();
const shares = new Shares(CONNECTION_LIMITS);

function accept(socket: Socket, make: (sandbox: string) => Served): void {
  const sandbox = socket.remoteAddress ?? "";
  socket.on("error", () => socket.destroy());
  if (!shares.enter(sandbox)) {
    parts.note(sandbox, undefined, "", "was refused: this sandbox has too many connections to hosts with rules or through its egress proxy");
    return void socket.resetAndDestroy();
  }
  const connection = make(sandbox);
  const own = connections.get(sandbox) ?? new Set();
  connections.set(sandbox, own.add(connection));
  socket.once("close", () => {
    shares.leave(sandbox);
    own.delete(connection);
    if (own.size === 0 && connections.get(sandbox) === own) connections.delete(sandbox);
  });
  connection.serve().catch((error: Error) => {
    parts.note(sandbox, undefined, "", `was ended: ${error.message}`);
    connection.destroy();
  });
}

const server = createServer({ pauseOnConnect: true }, (socket) => accept(socket, (sandbox) => new Connection(parts, socket, sandbox)));
const tunnelServer = createServer({ pauseOnConnect: true, allowHalfOpen: true }, (socket) =>
  accept(socket, (sandbox) => new TunnelConnection(tunnels, socket, sandbox)),
);
const listening = await opened(server, port);
// Without the addon nobody could say where a connection goes: the firewall then refuses what it would send here.
const tunnelListening = hasOriginalDestination() ? await opened(tunnelServer, tunnelPort) : 0;

/** Listens at the wanted port, or at another one if that is taken. */
async function opened(listener: Server, wanted: number): Promise<number> {
  const found = await listen(listener, wanted).catch(() => listen(listener, 0));
  listener.on("error", () => {});
  return found;
}

function listen(listener: Server, wanted: number): Promise<number> {
  return new Promise((resolve, reject) => {
    listener.once("error", reject);
    listener.listen({ host: address, port: wanted, backlog: LISTEN_BACKLOG }, () => {
      listener.removeListener("error", reject);
      resolve((listener.address() as { port: number }).port);
    });
  });
}

node.on("message", (message: ToIntercept) => {
  switch (message.say) {
    case "answer":
      asked.get(message.call)?.resolve(message.answer);
      return void asked.delete(message.call);
    case "problem":
      asked.get(message.call)?.reject(new Error(message.problem));
      return void asked.delete(message.call);
    case "changed":
      return dropHeaders();
    case "check": {
      dropHeaders(message.sandbox);
      const checks = [...(connections.get(message.sandbox) ?? [])].map((connection) => connection.check());
      return void Promise.all(checks).then(() => send({ say: "checked", call: message.call }));
    }
    case "forget":
      dropHeaders(message.sandbox);
      for (const connection of connections.get(message.sandbox) ?? []) connection.destroy();
      return;
    case "close":
      server.close();
      tunnelServer.close();
      for (const own of connections.values()) for (const connection of own) connection.destroy();
      return void node.close();
  }
});
send({ say: "ready", port: listening, tunnelPort: tunnelListening });
