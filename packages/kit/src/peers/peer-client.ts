// Connections to other servers of the deployment: plain, or by TLS with this process's certificate where the URL begins with https.
import { X509Certificate } from "node:crypto";
import { type ClientRequest, request as plainRequest, type RequestOptions } from "node:http";
import { Agent, request as tlsRequest } from "node:https";
import { isIP, Socket } from "node:net";
import { Readable } from "node:stream";
import { type ConnectionOptions, checkServerIdentity, connect, type PeerCertificate, type TLSSocket } from "node:tls";
import { type Send, sendBy } from "@svc/contract/call.ts";
import type { Dial } from "../proxy/wire.ts";
import { describedCertificate, type PeerCertificates } from "./peer-certificates.ts";
import { type Role, roleName } from "./roles.ts";

/** A failed handshake in words that name both sides; it has no code, so that no advice for clients of the deployment is added. */
export class PeerRefused extends Error {}

/** Idle connections end before a node ends them. */
const IDLE_MS = 30_000;
const MAX_SOCKETS = 64;

/** Reaches servers that speak plain HTTP. */
export const plainPeers = (): PeerClient => new PeerClient(undefined, "node");

type Fetch = typeof globalThis.fetch;
type FetchInit = {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly signal?: AbortSignal;
  readonly redirect?: "manual";
};

export class PeerClient {
  readonly #certificates: PeerCertificates | undefined;
  readonly #role: Role;
  readonly #protocol: string;
  #agent: Agent | undefined;
  readonly send: Send;

  /** `role` is that of the servers that are dialled; without certificates only `http:` URLs can be. `protocol` is a name of ALPN. */
  constructor(certificates: PeerCertificates | undefined, role: Role, protocol = "http/1.1") {
    this.#protocol = protocol;
    this.#certificates = certificates;
    this.#role = role;
    this.send = sendBy(((url: string, init: FetchInit) => this.fetch(url, init)) as Fetch);
    // Connections in use end with their requests; new ones get the new certificate.
    certificates?.onChange(() => {
      this.#agent = undefined;
    });
  }

  /** Returns how a connection of the proxy reaches the server at this URL. */
  dial(url: string): Dial {
    const { protocol, hostname, port } = new URL(url);
    const host = hostname.replace(/^\[|\]$/g, "");
    if (protocol === "http:") return { host, port: Number(port || 80) };
    return (options) => {
      const own = this.#options(url);
      return own === undefined ? withoutCertificate(url) : this.#secured(connect({ ...options, ...own, host, port: Number(port || 443) }), url);
    };
  }

  /** As `request` of node:http, on a connection of its own. */
  request(url: string, options: RequestOptions = {}): ClientRequest {
    if (url.startsWith("http:")) return plainRequest(url, { ...options, agent: false });
    return this.requestBy(url, { ...options, agent: false });
  }

  /** As `request`, to an `https:` URL, on a connection of this agent. */
  requestBy(url: string, options: RequestOptions): ClientRequest {
    const own = this.#options(url);
    if (own === undefined)
      return plainRequest(url.replace(/^https:/, "http:"), { ...options, agent: undefined, createConnection: () => withoutCertificate(url) });
    return this.#watched(tlsRequest(url, { ...options, ...own }), url);
  }

  /** As the global `fetch`, with these few options. */
  async fetch(url: string, { method = "GET", headers = {}, body, signal }: FetchInit = {}): Promise<Response> {
    if (url.startsWith("http:")) return fetch(url, { method, headers, ...(body === undefined ? {} : { body }), ...(signal === undefined ? {} : { signal }) });
    const own = this.#options(url);
    if (own === undefined) throw noCertificate(url);
    this.#agent ??= new Agent({ keepAlive: true, maxSockets: MAX_SOCKETS, timeout: IDLE_MS });
    const length = body === undefined ? {} : { "content-length": String(Buffer.byteLength(body)) };
    const options = { method, headers: { ...headers, ...length }, ...(signal === undefined ? {} : { signal }), agent: this.#agent };
    const sent = this.#watched(tlsRequest(url, { ...options, ...own }), url);
    return new Promise((resolve, reject) => {
      sent.once("error", reject);
      sent.once("response", (response) => {
        const status = response.statusCode ?? 0;
        const lines = Object.entries(response.headersDistinct).flatMap(([name, values = []]) => values.map((value): [string, string] => [name, value]));
        const isEmpty = status === 204 || status === 304;
        if (isEmpty) response.resume();
        resolve(new Response(isEmpty ? null : (Readable.toWeb(response) as ReadableStream), { status, headers: lines }));
      });
      sent.end(body);
    });
  }

  #watched(sent: ClientRequest, url: string): ClientRequest {
    sent.once("socket", (socket) => {
      if (socket.connecting) this.#secured(socket as TLSSocket, url);
    });
    return sent;
  }

  /** Returns undefined if this process has no certificate. */
  #options(url: string): ConnectionOptions | undefined {
    if (this.#certificates === undefined) return undefined;
    const host = new URL(url).hostname.replace(/^\[|\]$/g, "");
    return {
      secureContext: this.#certificates.context,
      ALPNProtocols: [this.#protocol],
      ...(isIP(host) === 0 ? { servername: host } : {}),
      checkServerIdentity: (_name, certificate) => this.#check(host, certificate),
    };
  }

  /** Accepts a certificate for the host that was dialled, and one for the role, since nodes often have addresses that nobody knows before. */
  #check(host: string, certificate: PeerCertificate): Error | undefined {
    return checkServerIdentity(host, certificate) === undefined ? undefined : checkServerIdentity(roleName(this.#role), certificate);
  }

  /** Replaces the error of a failed handshake by one that names both sides. */
  #secured(socket: TLSSocket, url: string): TLSSocket {
    let raw: Buffer | undefined;
    // The certificate can be read only before the library has rejected it. After getPeerX509Certificate the library would find none.
    socket.prependListener("secure", () => {
      raw = socket.getPeerCertificate().raw;
    });
    // The library emits some errors of TLS without ending the socket by them, so its events are the one place that sees all.
    const emit = socket.emit.bind(socket) as (event: string | symbol, ...values: unknown[]) => boolean;
    socket.emit = (event: string | symbol, ...values: unknown[]) =>
      event === "error" ? emit(event, this.#explained(values[0] as Error, raw && new X509Certificate(raw), url)) : emit(event, ...values);
    return socket;
  }

  #explained(error: NodeJS.ErrnoException, theirs: X509Certificate | undefined, url: string): Error {
    const certificates = this.#certificates;
    if (certificates === undefined || error instanceof PeerRefused) return error;
    const code = error.code ?? "";
    const { origin, hostname } = new URL(url);
    if (code === "ERR_TLS_CERT_ALTNAME_INVALID" && theirs !== undefined)
      return refused(
        `the server at ${origin} presented a certificate of ${describedCertificate(theirs)}; expected one for ${hostname} or ${roleName(this.#role)}; issue it with svc certs issue ${this.#role} --host ${hostname}`,
        error,
      );
    if (untrusted.has(code) && theirs !== undefined)
      return refused(
        `the server at ${origin} presented a certificate of ${describedCertificate(theirs)} (${code}); expected one signed by ${certificates.authorities}; issue both sides' certificates by one authority (svc certs issue)`,
        error,
      );
    if (/^ERR_SSL_.*_ALERT_/.test(code))
      return refused(
        `the server at ${origin} refused the certificate of this process, of ${certificates.described} (${code}); issue it by that server's authority`,
        error,
      );
    if (/^ERR_SSL_(WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG|HTTP_REQUEST)$/.test(code))
      return refused(
        this.#protocol === "http/1.1"
          ? `the server at ${origin} speaks plain HTTP; give it --peer-certs DIR, or begin its URL with http://`
          : `the ${this.#role} at ${origin} does not speak TLS on this port; give it --peer-certs DIR, and name its port of TLS`,
        error,
      );
    return error;
  }
}

const noCertificate = (url: string) =>
  new PeerRefused(
    `the server at ${new URL(url).origin} expects TLS, and this process has no certificate to show there: give it one with --peer-certs DIR (svc certs issue)`,
  );

function withoutCertificate(url: string): Socket {
  const socket = new Socket();
  process.nextTick(() => socket.destroy(noCertificate(url)));
  return socket;
}

const refused = (message: string, cause: Error) => new PeerRefused(message, { cause });

const untrusted: ReadonlySet<string> = new Set([
  "SELF_SIGNED_CERT_IN_CHAIN",
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "CERT_SIGNATURE_FAILURE",
  "CERT_HAS_EXPIRED",
  "CERT_NOT_YET_VALID",
  "INVALID_PURPOSE",
]);
