// Dials a port of a sandbox whose server speaks TLS itself (network.httpsPorts); its certificate is not verified, as nobody outside can have issued it.
import type { Socket } from "node:net";
import { Duplex } from "node:stream";
import { type ConnectionOptions, connect as connectTLS, type TLSSocket } from "node:tls";

const MAX_HEAD_BYTES = 16 * 1024;
const HEAD_END = "\r\n\r\n";

const withoutTrust = { rejectUnauthorized: false, ALPNProtocols: ["http/1.1"] };

/** The proxy's own options of a connection, with the buffers that it reads into. */
export type DialOptions = { readonly onread?: { readonly callback: (length: number, bytes: Buffer) => boolean } };

export function dialTLS(host: string, port: number, options: DialOptions): TLSSocket {
  return connectTLS({ ...options, ...withoutTrust, host, port } as ConnectionOptions);
}

/** For a server that listens only on loopback: `envd` leads to the relay inside, which opens the port after `preface`. */
export function dialTLSThrough(envd: Socket, preface: string, { onread }: DialOptions): TLSSocket {
  const socket = connectTLS({ ...withoutTrust, socket: new Relayed(envd, preface) });
  // Node ignores `onread` for a connection over another stream.
  socket.on("data", (bytes: Buffer) => onread?.callback(bytes.length, bytes));
  return socket;
}

/** The raw connection behind the relay's answer: TLS must not see its head. */
class Relayed extends Duplex {
  readonly #raw: Socket;
  #head: string | undefined = "";

  constructor(raw: Socket, preface: string) {
    super();
    this.#raw = raw;
    raw.on("error", (error) => this.destroy(error));
    raw.on("close", () => this.destroy());
    raw.on("end", () => this.push(null));
    raw.on("data", (bytes: Buffer) => this.#take(bytes));
    raw.write(preface);
  }

  #take(bytes: Buffer): void {
    if (this.#head === undefined) {
      if (!this.push(bytes)) this.#raw.pause();
      return;
    }
    this.#head += bytes.toString("latin1");
    const end = this.#head.indexOf(HEAD_END);
    if (end < 0 && this.#head.length <= MAX_HEAD_BYTES) return;
    if (end < 0 || !this.#head.startsWith("HTTP/1.1 101 ")) {
      this.destroy(Object.assign(new Error("the port is not open"), { code: "ECONNREFUSED" }));
      return;
    }
    const rest = Buffer.from(this.#head.slice(end + HEAD_END.length), "latin1");
    this.#head = undefined;
    if (rest.length > 0) this.push(rest);
  }

  override _read(): void {
    this.#raw.resume();
  }

  override _write(bytes: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#raw.write(bytes, done);
  }

  override _final(done: () => void): void {
    this.#raw.end(done);
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#raw.destroy();
    done(error);
  }
}
