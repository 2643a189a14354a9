// The node's proxy behind TLS with a self-signed certificate, and clients that trust its authority.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { type ClientHttp2Session, type ClientHttp2Stream, connect as connectHttp2, type IncomingHttpHeaders, type OutgoingHttpHeaders } from "node:http2";
import https from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type ConnectionOptions, connect as connectTls, type TLSSocket } from "node:tls";
import { openLog } from "@svc/kit/log.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import { Certificates } from "@svc/kit/tls/certificates.ts";
import { selfSignedFiles } from "@svc/kit/tls/self-signed.ts";
import type { ProxyOptions } from "../src/proxy/server.ts";
import { openFixture } from "./proxy-fixture.ts";

export const DOMAIN = "tls.test";
const BOUND_MS = 20_000;

export type Answered = { readonly status: number; readonly headers: IncomingHttpHeaders; readonly body: string; readonly trailers: IncomingHttpHeaders };
export type TlsFixture = Awaited<ReturnType<typeof openTlsFixture>>;

export async function openTlsFixture(options: Partial<ProxyOptions> = {}) {
  const home = mkdtempSync(join(tmpdir(), "svc-tls-"));
  const certificates = new Certificates({ choice: { kind: "self-signed" }, home, domains: [DOMAIN], log: openLog("test", "silent"), metrics: openMetrics() });
  const ca = readFileSync(selfSignedFiles(home).authorityFile, "utf8");
  const fixture = await openFixture({ certificates, domains: [DOMAIN], ...options });
  const { port } = fixture;
  const where = { host: "127.0.0.1", port, ca };
  const sessions: ClientHttp2Session[] = [];
  return {
    ...fixture,
    home,
    ca,
    /** Where plain HTTP is spoken to the same proxy. */
    localPort: fixture.proxy.local.port,
    /** Opens a TLS connection that asks for this name. */
    async secure(name: string, protocols: string[] = ["http/1.1"]): Promise<TLSSocket> {
      const socket = connectTls({ ...where, servername: name, ALPNProtocols: protocols, allowHalfOpen: true } as ConnectionOptions);
      socket.on("error", () => {});
      await new Promise<void>((resolve, reject) => socket.once("secureConnect", resolve).once("error", reject));
      return socket;
    },
    /** Sends a request of HTTP/1.1 over TLS. */
    get(name: string, path: string, headers: Record<string, string> = {}): Promise<{ status: number; body: string }> {
      return new Promise((resolve, reject) => {
        const request = https.get({ ...where, path, servername: name, headers: { host: `${name}:${port}`, ...headers }, agent: false }, (response) => {
          let body = "";
          response.setEncoding("utf8").on("data", (text) => (body += text));
          response.once("end", () => resolve({ status: response.statusCode ?? 0, body })).once("error", reject);
        });
        request.once("error", reject);
      });
    },
    async session(name: string, more: ConnectionOptions = {}): Promise<ClientHttp2Session> {
      const session = connectHttp2(`https://${name}:${port}`, {
        createConnection: () => connectTls({ ...where, servername: name, ALPNProtocols: ["h2"], ...more }),
      });
      session.on("error", () => {});
      sessions.push(session);
      await new Promise<void>((resolve, reject) =>
        session
          .once("remoteSettings", () => resolve())
          .once("error", reject)
          .once("close", () => reject(new Error("closed"))),
      );
      return session;
    },
    async [Symbol.asyncDispose]() {
      for (const session of sessions) session.destroy();
      await fixture[Symbol.asyncDispose]();
      rmSync(home, { recursive: true, force: true });
    },
  };
}

/** Sends a request on a stream of its own and returns the whole answer; rejects if the stream is reset. */
export function ask(session: ClientHttp2Session, headers: OutgoingHttpHeaders, body?: string | Buffer): Promise<Answered> {
  return answerOf(session.request(headers, { endStream: body === undefined }), body);
}

export function answerOf(stream: ClientHttp2Stream, body?: string | Buffer): Promise<Answered> {
  return new Promise((resolve, reject) => {
    const bound = setTimeout(() => stream.destroy(new Error("no answer in time")), BOUND_MS);
    let headers: IncomingHttpHeaders = {};
    let trailers: IncomingHttpHeaders = {};
    const pieces: Buffer[] = [];
    stream.on("response", (given) => (headers = given));
    stream.on("trailers", (given) => (trailers = given));
    stream.on("data", (piece: Buffer) => pieces.push(piece));
    stream.once("error", reject);
    stream.once("close", () => {
      clearTimeout(bound);
      if (stream.rstCode !== 0) reject(Object.assign(new Error(`the stream was reset with ${stream.rstCode}`), { rstCode: stream.rstCode }));
      else resolve({ status: Number(headers[":status"]), headers, body: Buffer.concat(pieces).toString("utf8"), trailers });
    });
    if (body !== undefined) stream.end(body);
  });
}
