// Sends requests to one sandbox's envd through the platform's proxy: routing headers, streams in both directions, failures by name.
import http, { type IncomingMessage } from "node:http";
import https from "node:https";
import { connect as connectTCP, isIP } from "node:net";
import type { Duplex, Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { connect as connectTLS } from "node:tls";
import { failureOf, noAnswer, reasonOf } from "./call.ts";
import { type ConnectError, envelope, failureOfConnect, messagesOf } from "./connect-stream.ts";
import { Failure, fail } from "./failures.ts";
import { tlsTrouble } from "./tls-trouble.ts";

/** The port inside a sandbox that selects envd. */
export const ENVD_PORT = 49983;
/** envd sends a keepalive this often on silent streams, so that no proxy between drops them as idle. */
const KEEPALIVE_SECONDS = 50;
const UNARY_TIMEOUT_MS = 60_000;
/** The time limit for a stream's first message, before which the sandbox may have to be resumed. */
const SILENCE_MS = 120_000;
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;

export type EnvdAddress = {
  /** The platform's URL, for example http://localhost:8000 */
  readonly baseURL: string;
  readonly sandboxID: string;
  /** Sent as X-Access-Token; a secure sandbox requires it. */
  readonly envdAccessToken?: string | undefined;
  /** The time limit for the first message of a stream; default two minutes. */
  readonly silenceMs?: number;
};

export type RequestOptions = {
  /** The user inside the sandbox whose rights apply; default: the template's (`user`). */
  readonly user?: string | undefined;
  readonly signal?: AbortSignal | undefined;
};

export type EnvdRequest = RequestOptions & {
  readonly method: string;
  /** Path and query as envd sees them: /files?path=… */
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Buffer | Readable | undefined;
  /** Fails with TIMED_OUT if no answer has begun by then; streams have no limit. */
  readonly timeoutMs?: number;
};

/** One keep-alive pool per sandbox address; its idle connections do not keep the process alive. */
export class EnvdHttp {
  readonly #address: EnvdAddress;
  readonly #prefix: string;
  readonly #transport: typeof http | typeof https;
  readonly #agent: http.Agent;

  constructor(address: EnvdAddress) {
    this.#address = address;
    this.#prefix = `${address.baseURL.replace(/\/+$/, "")}/proxy`;
    this.#transport = address.baseURL.startsWith("https:") ? https : http;
    this.#agent = new this.#transport.Agent({ keepAlive: true });
  }

  close(): void {
    this.#agent.destroy();
  }

  /** Calls a unary RPC such as `process.Process/List`: JSON in, JSON out. `timeoutMs` 0: no limit. */
  async unary(method: string, message: object, options: RequestOptions = {}, timeoutMs = UNARY_TIMEOUT_MS): Promise<Record<string, unknown>> {
    const headers = { "content-type": "application/json", "connect-protocol-version": "1" };
    const body = Buffer.from(JSON.stringify(message));
    const response = await this.#send({ ...options, method: "POST", path: `/${method}`, headers, body, timeoutMs }, true);
    const text = await textOf(response).catch((error) => this.#broken(method, error, options.signal));
    if (response.statusCode !== 200) throw this.#failure(response, text, method);
    return JSON.parse(text === "" ? "{}" : text) as Record<string, unknown>;
  }

  /** Calls a server stream such as `process.Process/Start`; `timeoutMs` is the server's limit on the whole call (Connect-Timeout-Ms). */
  async *stream(method: string, message: object, options: RequestOptions & { timeoutMs?: number | undefined } = {}): AsyncGenerator<Record<string, unknown>> {
    const headers: Record<string, string> = {
      "content-type": "application/connect+json",
      "connect-protocol-version": "1",
      "keepalive-ping-interval": String(KEEPALIVE_SECONDS),
      ...(options.timeoutMs === undefined ? {} : { "connect-timeout-ms": String(options.timeoutMs) }),
    };
    const { user, signal } = options;
    // envd reports the start at once; a sandbox that can no longer start processes may never answer.
    const silence = new AbortController();
    const timer = setTimeout(() => silence.abort(), this.#address.silenceMs ?? SILENCE_MS);
    const either = signal === undefined ? silence.signal : AbortSignal.any([signal, silence.signal]);
    let response: IncomingMessage | undefined;
    try {
      response = await this.#send({ user, signal: either, method: "POST", path: `/${method}`, headers, body: envelope(message) }, false);
      if (response.statusCode !== 200) throw this.#failure(response, await textOf(response), method);
      for await (const each of messagesOf(response as AsyncIterable<Buffer>, method)) {
        clearTimeout(timer);
        yield each;
      }
    } catch (error) {
      if (silence.signal.aborted) fail("GUEST_UNRESPONSIVE", this.#silentFor(method), { cause: error, ...this.#details });
      // There was no response at all: the error from the request already says why.
      if (response === undefined) throw error;
      this.#broken(method, error, signal);
    } finally {
      clearTimeout(timer);
      response?.destroy();
    }
  }

  /** Sends a plain HTTP request such as GET /files; a status of 400 or more throws. The caller reads or destroys the answer. */
  async request(request: EnvdRequest): Promise<IncomingMessage> {
    const response = await this.#send(request, false);
    if ((response.statusCode ?? 0) >= 400) throw this.#failure(response, await textOf(response), `${request.method} ${request.path}`);
    return response;
  }

  /**
   * Opens a raw connection to a TCP port inside the sandbox, which may listen on loopback only; either side may end its half first. PORT_NOT_OPEN when nothing
   * listens there.
   */
  async openPort(port: number, { signal }: RequestOptions = {}): Promise<Duplex> {
    const silence = new AbortController();
    const timer = setTimeout(() => silence.abort(), this.#address.silenceMs ?? SILENCE_MS);
    const describe = `port ${port}`;
    const connection = this.#dialHalfOpen();
    const outgoing = this.#transport.request(`${this.#prefix}/forward?port=${port}`, {
      headers: { ...this.#routing, connection: "Upgrade", upgrade: "svc-relay" },
      createConnection: () => connection,
      signal: signal === undefined ? silence.signal : AbortSignal.any([signal, silence.signal]),
    });
    const answered = new Promise<Duplex>((resolve, reject) => {
      outgoing.once("upgrade", (_response, socket, head) => {
        if (head.length > 0) socket.unshift(head);
        resolve(socket);
      });
      outgoing.once("response", (response) => {
        textOf(response).then((text) => reject(this.#failure(response, text, describe)), reject);
      });
      outgoing.once("error", reject);
    });
    outgoing.end();
    try {
      return await answered;
    } catch (error) {
      // The connection belongs to no agent; if it stayed open, it would keep the process alive.
      connection.destroy();
      if (silence.signal.aborted) fail("GUEST_UNRESPONSIVE", this.#silentFor(describe), { cause: error, ...this.#details });
      if (signal?.aborted === true) throw error;
      if (tlsTrouble(error) !== undefined) throw noAnswer(this.#address.baseURL, error);
      if (!(error instanceof Failure))
        throw new Failure("SERVER_UNREACHABLE", `no server answers at ${this.#address.baseURL} (${reasonOf(error)})`, { cause: error });
      if (!/port is not open/i.test(error.message)) throw error;
      const text = `nothing listens on port ${port} in sandbox ${this.#address.sandboxID}: start a server there first`;
      throw new Failure("PORT_NOT_OPEN", text, { cause: error, ...this.#details });
    } finally {
      clearTimeout(timer);
    }
  }

  /** Node's agents open connections that close completely when the peer ends its half, so this connection is opened without one. */
  #dialHalfOpen(): Duplex {
    const { protocol, hostname, port } = new URL(this.#address.baseURL);
    const host = hostname.replace(/^\[|\]$/g, "");
    const isTLS = protocol === "https:";
    const where = { host, port: Number(port || (isTLS ? 443 : 80)), allowHalfOpen: true, noDelay: true };
    return isTLS ? connectTLS({ ...where, ...(isIP(host) === 0 ? { servername: host } : {}), ALPNProtocols: ["http/1.1"] }) : connectTCP(where);
  }

  get #routing(): Record<string, string> {
    const { sandboxID, envdAccessToken } = this.#address;
    const token: Record<string, string> = envdAccessToken === undefined ? {} : { "x-access-token": envdAccessToken };
    return { "x-svc-sandbox-id": sandboxID, "x-svc-target-port": String(ENVD_PORT), ...token };
  }

  async #send(request: EnvdRequest, mayRepeat: boolean): Promise<IncomingMessage> {
    const headers: Record<string, string> = { ...request.headers, ...this.#routing };
    if (request.user !== undefined) headers["authorization"] = `Basic ${Buffer.from(`${request.user}:`).toString("base64")}`;
    if (Buffer.isBuffer(request.body)) headers["content-length"] = String(request.body.length);
    const signals = [request.signal, (request.timeoutMs ?? 0) === 0 ? undefined : AbortSignal.timeout(request.timeoutMs ?? 0)].filter(
      (signal) => signal !== undefined,
    );
    const outgoing = this.#transport.request(this.#prefix + request.path, {
      method: request.method,
      headers,
      agent: this.#agent,
      ...(signals.length === 0 ? {} : { signal: AbortSignal.any(signals) }),
    });
    outgoing.setNoDelay(true);
    const answered = new Promise<IncomingMessage>((resolve, reject) => outgoing.once("response", resolve).on("error", reject));
    // An answer may arrive before the upload is complete (507, 401): the answer is valid, and the rest of the upload is dropped.
    const sent = request.body === undefined || Buffer.isBuffer(request.body) ? outgoing.end(request.body) : pipeline(request.body, outgoing);
    try {
      if (sent instanceof Promise) sent.catch(() => {});
      return await answered;
    } catch (error) {
      // The server may close an idle connection just as it is reused; it has not read such a request, so a retry is safe.
      if (mayRepeat && outgoing.reusedSocket && (error as NodeJS.ErrnoException).code === "ECONNRESET") return this.#send(request, false);
      if (request.signal?.aborted === true) throw error;
      // If a local file cannot be read, the upload ends with that error, which must not be reported as a network failure.
      if (sent instanceof Promise)
        await sent.catch((cause: NodeJS.ErrnoException) => {
          if (cause.syscall === "read" || cause.syscall === "open" || cause instanceof Failure) throw cause;
        });
      const timedOut = signals.some((signal) => signal.aborted);
      const where = this.#address.baseURL;
      if (timedOut)
        throw new Failure("TIMED_OUT", `${request.method} ${request.path}: sandbox ${this.#address.sandboxID} did not answer within ${request.timeoutMs} ms`, {
          cause: error,
        });
      if (tlsTrouble(error) !== undefined) throw noAnswer(where, error);
      throw new Failure("SERVER_UNREACHABLE", `sandbox ${this.#address.sandboxID} did not answer at ${where} (${reasonOf(error)})`, { cause: error });
    }
  }

  #silentFor(method: string): string {
    const { sandboxID, silenceMs = SILENCE_MS } = this.#address;
    return `sandbox ${sandboxID} began nothing within ${silenceMs / 1000} s of ${method}: it may lack memory, processes or its files; svc logs ${sandboxID} and svc metrics ${sandboxID} show more`;
  }

  /** Marks a failure as coming from the sandbox, not from the control plane. */
  get #details() {
    return { details: { sandboxID: this.#address.sandboxID } };
  }

  #broken(describe: string, error: unknown, signal: AbortSignal | undefined): never {
    if (signal?.aborted === true) throw error;
    if (error instanceof Failure) throw new Failure(error.name, error.message, { cause: error, ...this.#details });
    const text = `${describe}: the connection to sandbox ${this.#address.sandboxID} broke (${reasonOf(error)})`;
    throw new Failure("SERVER_UNREACHABLE", text, { cause: error, ...this.#details });
  }

  /** The proxy's error bodies name the failure; envd's contain a Connect code, or the HTTP status as a number. */
  #failure(response: IncomingMessage, text: string, describe: string): Failure {
    const code = connectErrorOf(text);
    const { name, message } =
      code === undefined ? failureOf(response.statusCode ?? 500, response.headers["retry-after"], text) : failureOfConnect(code, describe);
    // An unknown path of envd's API is not the same as a missing file.
    const isFile = describe.includes("/files") && !message.startsWith("envd has nothing at ");
    return new Failure(isFile && name === "ROUTE_NOT_FOUND" ? "FILE_NOT_FOUND" : name, message, this.#details);
  }
}

function connectErrorOf(text: string): ConnectError | undefined {
  try {
    const body = JSON.parse(text) as { code?: unknown; message?: unknown };
    if (typeof body.code === "string") return { code: body.code, message: typeof body.message === "string" ? body.message : "" };
  } catch {}
  return undefined;
}

async function textOf(response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > MAX_ANSWER_BYTES) throw new Failure("PAYLOAD_TOO_LARGE", `an answer of more than ${MAX_ANSWER_BYTES} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}
