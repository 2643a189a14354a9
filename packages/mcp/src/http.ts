// The protocol over HTTP, in both of its forms: sessions for clients that initialize one, and single requests since revision 2026-07-28.
import { randomUUID, timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { createMcpHandler, isInitializeRequest, isLegacyRequest, type McpServer, WebStandardStreamableHTTPServerTransport } from "@modelcontextprotocol/server";
import { exactText } from "@svc/contract/exact-text.ts";
import type { SessionSandboxes } from "./sandboxes.ts";
import { openServer } from "./server.ts";
import { sendResponse, webRequest } from "./web-request.ts";

const PATH = "/mcp";
const MAX_SESSIONS = 100;
/** Large enough for the JSON encoding of the largest file that a tool accepts. */
export const MAX_MESSAGE_BYTES = 40 * 1024 * 1024;
const BODY_MS = 60_000;
const SWEEP_MS = 30_000;
const LOOPBACK_HOST = /^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$/;

export type HttpOptions = {
  readonly host: string;
  readonly port: number;
  /** Required as `Authorization: Bearer …`; undefined only on a loopback address. */
  readonly token: string | undefined;
  /** A session ends after this time without requests. */
  readonly idleMs: number;
  openSandboxes(kind: { readonly stateless: boolean }): SessionSandboxes;
  /** Opens the protocol server of a session or request. Tests pass their own, which has more tools. */
  readonly open?: (sandboxes: SessionSandboxes) => McpServer;
};

type Session = { readonly transport: WebStandardStreamableHTTPServerTransport; readonly sandboxes: SessionSandboxes; open: number; idleSinceMs: number };

export type HttpServer = { readonly url: string; close(): Promise<void> };

export async function listenHttp({ host, port, token, idleMs, openSandboxes, open = openServer }: HttpOptions): Promise<HttpServer> {
  const sessions = new Map<string, Session>();
  const stateless = openSandboxes({ stateless: true });
  const single = createMcpHandler(() => open(stateless), { legacy: "reject", onerror: (error) => (isRefusal(error) ? undefined : report(error)) });

  async function begin(): Promise<Session> {
    const sandboxes = openSandboxes({ stateless: false });
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => void sessions.set(id, session),
      onsessionclosed: (id) => void end(id),
    });
    const session: Session = { transport, sandboxes, open: 0, idleSinceMs: performance.now() };
    await open(sandboxes).connect(transport);
    return session;
  }

  async function end(id: string): Promise<void> {
    const session = sessions.get(id);
    if (session === undefined) return;
    sessions.delete(id);
    await session.transport.close().catch(() => undefined);
    await session.sandboxes.close();
  }

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const refused = refusal(request, token);
    if (refused !== undefined) return refuse(response, ...refused);
    const body = request.method === "POST" ? await readBody(request) : undefined;
    if (typeof body === "string") return refuse(response, 400, body);
    const asked = webRequest(request, response);
    const parsedBody = body?.json;
    if (request.method === "POST" && !(await isLegacyRequest(asked, parsedBody))) return sendResponse(response, await single.fetch(asked, { parsedBody }));
    const id = request.headers["mcp-session-id"];
    let session = typeof id === "string" ? sessions.get(id) : undefined;
    if (session === undefined && id !== undefined)
      return refuse(response, 404, "the session is not known here: it has ended, or the server was restarted; initialize again");
    if (session === undefined && request.method !== "POST")
      return refuse(response, 405, "expected POST, or the Mcp-Session-Id of a session that an initialize request began", { allow: "POST" });
    if (session === undefined && !isInitializeRequest(parsedBody))
      return refuse(response, 400, "a session begins with an initialize request and continues with its Mcp-Session-Id header");
    if (session === undefined && sessions.size >= MAX_SESSIONS)
      return refuse(response, 503, `${MAX_SESSIONS} sessions are open, the maximum; end some, or try again later`);
    session ??= await begin();
    const current = session;
    current.open++;
    response.once("close", () => {
      current.open--;
      current.idleSinceMs = performance.now();
    });
    return sendResponse(response, await current.transport.handleRequest(asked, { parsedBody }));
  }

  const server: Server = createServer({ requestTimeout: BODY_MS, headersTimeout: 10_000, maxHeaderSize: 16 * 1024 }, (request, response) => {
    answer(request, response).catch((error: unknown) => {
      if (response.destroyed) return;
      report(error);
      if (!response.headersSent) refuse(response, 500, "the request could not be answered; the server's log says why");
      else response.destroy();
    });
  });
  await new Promise<void>((resolve, reject) => server.once("error", reject).listen(port, host, resolve));
  const sweep = setInterval(() => {
    for (const [id, { open, idleSinceMs }] of sessions) if (open === 0 && performance.now() - idleSinceMs > idleMs) void end(id);
  }, SWEEP_MS).unref();
  const bound = (server.address() as AddressInfo).port;
  return {
    url: `http://${host.includes(":") ? `[${host}]` : host}:${bound}${PATH}`,
    async close() {
      clearInterval(sweep);
      server.close();
      await single.close();
      await Promise.all([...sessions.keys()].map(end));
      await stateless.close();
      server.closeAllConnections();
    },
  };
}

/** The client learns the reason from its answer; the log is for faults of the server. */
function isRefusal({ message }: Error): boolean {
  return message.startsWith("Rejected inbound request");
}

function report(error: unknown): void {
  process.stderr.write(`svc mcp: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
}

/**
 * Returns why a request is refused: another path, a wrong token, or a web page that reaches this machine's server through DNS rebinding.
 */
function refusal({ url, headers }: IncomingMessage, token: string | undefined): [code: number, message: string] | undefined {
  if (new URL(url ?? "/", "http://server").pathname !== PATH) return [404, `there is nothing here; the protocol is spoken at ${PATH}`];
  if (token !== undefined) {
    const given = Buffer.from(headers.authorization?.replace(/^Bearer /i, "") ?? "");
    const wanted = Buffer.from(token);
    if (given.length !== wanted.length || !timingSafeEqual(given, wanted)) return [401, "send the token as Authorization: Bearer TOKEN"];
    return undefined;
  }
  const origin = headers.origin === undefined ? undefined : headers.origin.replace(/^https?:\/\//, "");
  if (!LOOPBACK_HOST.test(headers.host ?? "") || (origin !== undefined && !LOOPBACK_HOST.test(origin)))
    return [403, "without a token only this machine is served; start the server with --token-file"];
  return undefined;
}

async function readBody(request: IncomingMessage): Promise<{ json: unknown } | string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > MAX_MESSAGE_BYTES) return `the body is larger than ${MAX_MESSAGE_BYTES} bytes`;
    chunks.push(chunk);
  }
  try {
    return { json: JSON.parse(exactText(Buffer.concat(chunks))) };
  } catch {
    return "the body is not valid JSON";
  }
}

function refuse(response: ServerResponse, code: number, message: string, headers: Readonly<Record<string, string>> = {}): void {
  response.writeHead(code, { "content-type": "application/json", ...headers, ...(code === 401 ? { "www-authenticate": "Bearer" } : {}) });
  response.end(JSON.stringify({ jsonrpc: "2.0", error: { code: -32000, message }, id: null }));
}
