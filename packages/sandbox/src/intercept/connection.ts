// One connection of a sandbox to an address of a host with rules: its name is read, then its TLS is opened, or it passes as it is.
import { connect, type Socket } from "node:net";
import { type ConnectionOptions, createServer, type SecureContext, connect as secureConnect, type TLSSocket } from "node:tls";
import { type DialledProxy, dialThrough } from "../egress/socks5.ts";
import { type Hello, MAX_HELLO_BYTES, readHello } from "./hello.ts";
import type { Http1 } from "./http1.ts";
import { serveHttp2 } from "./http2.ts";
import { type Certificate, type Headers, HTTPS_PORT, type Route } from "./messages.ts";
import type { Admitted, Opened } from "./opened.ts";

/** A client sends its first message at once, and both sides have this long for a handshake. */
const HELLO_MS = 15_000;
const CONNECT_MS = 10_000;
const HANDSHAKE_MS = 20_000;
const MAX_ADDRESSES_TRIED = 3;
const KNOWN_PROTOCOLS = ["h2", "http/1.1"];
/** Codes of a client that refuses the certificate it was shown. */
const DISTRUST = /UNKNOWN_CA|BAD_CERTIFICATE|CERTIFICATE_UNKNOWN|CERTIFICATE_EXPIRED|UNSUPPORTED_CERTIFICATE|CERTIFICATE_REVOKED/;

export type ConnectionParts = {
  /** The upstream's certificate is checked against these authorities. */
  readonly authorities: SecureContext;
  readonly http1: Http1;
  readonly route: (sandbox: string, name: string | undefined) => Promise<Route>;
  readonly certificate: (name: string) => Promise<Certificate>;
  readonly headers: (sandbox: string, name: string) => Promise<Headers>;
  readonly note: (sandbox: string, name: string | undefined, address: string, why: string) => void;
};

const wayOf = (route: Route): string => JSON.stringify([route.verdict, "proxy" in route ? route.proxy : undefined]);
type Allowed = Exclude<Route, { verdict: "refuse" }>;
/** Begins a connection, which emits `open` once it can be used. */
type Dial = (host: string, failed: (error: Error) => void) => Socket;

export class Connection {
  readonly #parts: ConnectionParts;
  readonly #socket: Socket;
  readonly #sandbox: string;
  #name: string | undefined;
  #way: string | undefined;
  #address = "";

  constructor(parts: ConnectionParts, socket: Socket, sandbox: string) {
    this.#parts = parts;
    this.#socket = socket;
    this.#sandbox = sandbox;
  }

  async serve(): Promise<void> {
    const socket = this.#socket;
    socket.setNoDelay(true);
    const first = await helloOf(socket);
    if (first === undefined) return;
    if (first.hello === undefined) return this.#refuse("is not TLS, and no rules can apply to it: connect by HTTPS");
    const { hello } = first;
    const name = hello.serverName;
    this.#name = name;
    const route = await this.#parts.route(this.#sandbox, name);
    this.#way = wayOf(route);
    if (route.verdict === "refuse") {
      this.#address = route.address;
      return this.#refuse(route.why);
    }
    if (socket.destroyed || name === undefined) return void socket.destroy();
    socket.unshift(first.bytes);
    if (route.verdict === "pass") await this.#pass(route, name);
    else await this.#open(route, name, hello);
  }

  /** Ends the connection if its route is another one now. */
  async check(): Promise<void> {
    if (this.#way === undefined || this.#socket.destroyed) return;
    const route = await this.#parts.route(this.#sandbox, this.#name).catch(() => undefined);
    if (route === undefined || wayOf(route) !== this.#way) this.destroy();
  }

  destroy(): void {
    this.#socket.resetAndDestroy();
  }

  async #pass(route: Allowed, name: string): Promise<void> {
    const dialled = route.proxy === undefined ? this.#firstOf(route.addresses, dialPlain) : this.#through(route.proxy, name);
    const upstream = await dialled.catch((error: Error) => this.#refuse(`cannot be reached: ${error.message}`, name));
    if (upstream === undefined) return;
    this.#socket.allowHalfOpen = true;
    splice(this.#socket, upstream);
  }

  async #open(route: Allowed, name: string, { protocols }: Hello): Promise<void> {
    const offered = protocols.filter((protocol) => KNOWN_PROTOCOLS.includes(protocol));
    const certificate = this.#parts.certificate(name);
    certificate.catch(() => undefined);
    const secure: ConnectionOptions = {
      servername: name,
      secureContext: this.#parts.authorities,
      ...(offered.length === 0 ? {} : { ALPNProtocols: offered }),
    };
    const dial =
      (over: ConnectionOptions): Dial =>
      (host, failed) => {
        const dialled = secureConnect({ host, port: HTTPS_PORT, ...secure, ...over });
        dialled.once("secureConnect", () => dialled.emit("open"));
        dialled.once("error", failed);
        return dialled;
      };
    const { proxy } = route;
    const dialled =
      proxy === undefined ? this.#firstOf(route.addresses, dial({})) : this.#through(proxy, name).then((socket) => this.#firstOf([name], dial({ socket })));
    const upstream = (await dialled.catch((error: NodeJS.ErrnoException) => this.#refuse(upstreamText(error)))) as TLSSocket | undefined;
    if (upstream === undefined) return;
    upstream.setNoDelay(true);
    const { certificate: cert, key } = await certificate;
    if (this.#socket.destroyed) return void upstream.destroy();
    // The client gets the protocol that the upstream chose, so that no message has to be translated.
    const chosen = upstream.alpnProtocol;
    const client = await this.#handshake(cert, key, chosen === false || chosen === null ? undefined : chosen);
    if (client === undefined) return void upstream.destroy();
    client.on("error", () => client.destroy());
    client.once("close", () => upstream.destroy());
    upstream.once("close", () => void client.end(() => client.destroy()));
    const opened: Opened = { name, upstream, admit: (host) => this.#admit(name, host) };
    if (chosen === "h2") serveHttp2(client, opened);
    else this.#parts.http1.serve(client, opened);
  }

  /** Accepts the client's handshake; returns undefined if it refuses, with an entry in the log that says so. */
  #handshake(cert: string, key: string, protocol: string | undefined): Promise<TLSSocket | undefined> {
    const server = createServer({ cert, key, handshakeTimeout: HANDSHAKE_MS, ...(protocol === undefined ? {} : { ALPNProtocols: [protocol] }) });
    return new Promise((resolve) => {
      server.once("secureConnection", resolve);
      server.once("tlsClientError", (error: NodeJS.ErrnoException) => {
        const isDistrust = DISTRUST.test(error.code ?? "") || DISTRUST.test(error.message);
        const why = isDistrust
          ? "was ended by the program, which does not trust this deployment's authority: it pins its certificates or has a trust store of its own; remove the rules of this host, or let the program trust the authority (svc secret ca)"
          : `was ended during its TLS handshake (${error.message}): a program that pins its certificates does this, and rules cannot apply to it`;
        this.#refuse(why);
        resolve(undefined);
      });
      server.emit("connection", this.#socket);
    });
  }

  async #admit(name: string, host: string | undefined): Promise<Admitted> {
    if (host !== name) {
      const why = `a request for ${host === undefined ? "no host, or several" : `host '${host}'`} came on a connection to '${name}', which has rules: both must name the same host`;
      this.#parts.note(this.#sandbox, name, this.#address, `was refused: ${why}`);
      return { status: 421, refused: why };
    }
    try {
      const { headers } = await this.#parts.headers(this.#sandbox, name);
      return { headers };
    } catch (error) {
      const why = `the rules for ${name} cannot be applied: ${(error as Error).message}`;
      this.#parts.note(this.#sandbox, name, this.#address, `was refused: ${why}`);
      return { status: 502, refused: why };
    }
  }

  /** Tries the addresses one after the other. */
  async #firstOf(addresses: readonly string[], dial: Dial): Promise<Socket> {
    let failure: Error = new Error("its name did not resolve");
    for (const host of addresses.slice(0, MAX_ADDRESSES_TRIED)) {
      this.#address = host;
      try {
        return await new Promise<Socket>((resolve, reject) => {
          const timer = setTimeout(() => failed(new Error(`no connection within ${CONNECT_MS} ms`)), CONNECT_MS);
          const failed = (error: Error): void => {
            clearTimeout(timer);
            this.#socket.off("close", gone);
            dialled.destroy();
            reject(error);
          };
          const gone = (): void => failed(new Error("the program ended the connection"));
          const dialled = dial(host, failed);
          dialled.once("open", () => {
            clearTimeout(timer);
            this.#socket.off("close", gone);
            dialled.off("error", failed).on("error", () => dialled.destroy());
            resolve(dialled);
          });
          this.#socket.once("close", gone);
        });
      } catch (error) {
        failure = error as Error;
        if (this.#socket.destroyed) break;
      }
    }
    throw failure;
  }

  /** The proxy resolves the name, so that a name with several addresses is tried as the proxy sees fit. */
  #through(proxy: DialledProxy, name: string): Promise<Socket> {
    const abandoned = new AbortController();
    this.#socket.once("close", () => abandoned.abort());
    return dialThrough(proxy, name, HTTPS_PORT, abandoned.signal);
  }

  #refuse(why: string, name = this.#name): undefined {
    if (!this.#socket.destroyed || why !== "") this.#parts.note(this.#sandbox, name, this.#address, why);
    this.destroy();
    return undefined;
  }
}

/** Reads until the first message is complete; undefined if the client ended the connection, and no hello for what is not TLS. */
function helloOf(socket: Socket): Promise<{ bytes: Buffer; hello: Hello | undefined } | undefined> {
  return new Promise((resolve) => {
    let bytes: Buffer = Buffer.alloc(0);
    const done = (found: { bytes: Buffer; hello: Hello | undefined } | undefined): void => {
      clearTimeout(timer);
      socket.off("data", onData).off("close", onEnd).off("end", onEnd).pause();
      resolve(found);
    };
    const onEnd = (): void => done(undefined);
    const onData = (chunk: Buffer): void => {
      bytes = bytes.length === 0 ? chunk : Buffer.concat([bytes, chunk]);
      const read = readHello(bytes);
      if (typeof read !== "string") done({ bytes, hello: read });
      else if (read === "other" || bytes.length > MAX_HELLO_BYTES) done({ bytes, hello: undefined });
    };
    const timer = setTimeout(() => done({ bytes, hello: undefined }), HELLO_MS);
    socket.on("data", onData).on("close", onEnd).on("end", onEnd).resume();
  });
}

function dialPlain(host: string, failed: (error: Error) => void): Socket {
  const dialled = connect({ host, port: HTTPS_PORT, allowHalfOpen: true }, () => dialled.emit("open"));
  dialled.once("error", failed);
  return dialled;
}

function splice(client: Socket, upstream: Socket): void {
  upstream.setNoDelay(true);
  client.pipe(upstream);
  upstream.pipe(client);
  client.once("close", () => upstream.destroy());
  upstream.once("close", () => client.destroy());
}

function upstreamText(error: NodeJS.ErrnoException): string {
  const isCertificate = /CERT|SELF_SIGNED|ISSUER|ALTNAME|VERIFY/.test(error.code ?? "");
  return isCertificate
    ? `was refused: the host's certificate is not valid for this node (${error.message}); egress.ca_file names further authorities`
    : `cannot be reached by HTTPS: ${error.message}`;
}
