// Dials through a SOCKS5 proxy (RFC 1928), with a user name and password if it demands them (RFC 1929).
import { once } from "node:events";
import { connect, isIPv4, type Socket } from "node:net";
import { type ConnectionOptions, checkServerIdentity, createSecureContext, type PeerCertificate, type SecureContext, connect as secureConnect } from "node:tls";
import { trustedBy } from "./trusted.ts";

export type DialledProxy = {
  /** As the client named it, for messages. */
  readonly address: string;
  /** The addresses of its host now, of which the first that accepts is used; no other name is looked up for this connection. */
  readonly hosts: readonly string[];
  readonly port: number;
  readonly username?: string;
  readonly password?: string;
  /** Present: SOCKS5 is spoken inside TLS. Without `caCert` the host's own authorities count, and further ones of the node. */
  readonly tls?: { readonly serverName: string; readonly caCert?: string; readonly authorities?: string };
};

const VERSION = 5;
const NO_CREDENTIALS = 0;
const BY_PASSWORD = 2;
const PASSWORD_VERSION = 1;
const CONNECT = 1;
const BY_IPV4 = 1;
const BY_NAME = 3;
const BY_IPV6 = 4;
const MAX_HOSTS_TRIED = 3;
const MAX_CONTEXTS = 64;
const CONNECT_MS = 10_000;
/** The proxy's answer comes after it has dialled the destination itself. */
const ANSWER_MS = 30_000;

/** RFC 1928, section 6. */
const refusals: Readonly<Record<number, string>> = {
  1: "it failed",
  2: "its rules do not allow this connection",
  3: "it cannot reach the network",
  4: "it cannot reach the host",
  5: "the destination refused the connection",
  6: "the connection expired",
  7: "it does not know CONNECT",
  8: "it does not take this kind of address",
};

/** Returns a paused socket whose next bytes come from the destination. `abandoned` ends the attempt. @throws with a sentence that names the proxy. */
export async function dialThrough(proxy: DialledProxy, host: string, port: number, abandoned: AbortSignal): Promise<Socket> {
  let failure = new Error("its name does not resolve");
  for (const address of proxy.hosts.slice(0, MAX_HOSTS_TRIED)) {
    try {
      const socket = await reach(address, proxy, abandoned);
      try {
        await agree(socket, proxy, abandoned);
        await request(socket, host, port, abandoned);
        return socket;
      } catch (error) {
        socket.destroy();
        throw new Error(`the egress proxy ${proxy.address} refused the connection: ${(error as Error).message}`, { cause: error });
      }
    } catch (error) {
      // A proxy that answers is used, whatever it answers: trying its other addresses could repeat the connection.
      if (!(error instanceof Unreachable)) throw error;
      failure = error;
    }
  }
  throw new Error(`the egress proxy ${proxy.address} cannot be reached: ${failure.message}`, { cause: failure });
}

class Unreachable extends Error {}

function secureOptions(host: string, port: number, tls: NonNullable<DialledProxy["tls"]>): ConnectionOptions {
  const { serverName } = tls;
  const options = {
    host,
    port,
    allowHalfOpen: true,
    secureContext: contextOf(tls),
    // RFC 6066 allows no address as a name.
    ...(isIPv4(serverName) ? {} : { servername: serverName }),
    checkServerIdentity: (_: string, certificate: PeerCertificate) => checkServerIdentity(serverName, certificate),
  };
  return options;
}

const contexts = new Map<string, SecureContext>();

/** Making one takes milliseconds, so the latest are kept. */
function contextOf({ caCert, authorities = "" }: NonNullable<DialledProxy["tls"]>): SecureContext {
  const key = JSON.stringify([caCert, authorities]);
  let context = contexts.get(key);
  if (context !== undefined) return context;
  context = caCert === undefined ? trustedBy(authorities) : createSecureContext({ ca: caCert });
  if (contexts.size >= MAX_CONTEXTS) contexts.clear();
  contexts.set(key, context);
  return context;
}

async function reach(host: string, { port, tls }: DialledProxy, abandoned: AbortSignal): Promise<Socket> {
  const socket = tls === undefined ? connect({ host, port, allowHalfOpen: true }) : secureConnect(secureOptions(host, port, tls));
  try {
    await once(socket, tls === undefined ? "connect" : "secureConnect", { signal: AbortSignal.any([abandoned, AbortSignal.timeout(CONNECT_MS)]) });
  } catch (error) {
    socket.on("error", () => {}).destroy();
    throw new Unreachable((error as Error).name === "AbortError" ? `no connection within ${CONNECT_MS} ms` : (error as Error).message);
  }
  socket.setNoDelay(true);
  return socket.on("error", () => socket.destroy());
}

async function agree(socket: Socket, { username, password = "" }: DialledProxy, abandoned: AbortSignal): Promise<void> {
  socket.write(Buffer.from(username === undefined ? [VERSION, 1, NO_CREDENTIALS] : [VERSION, 2, NO_CREDENTIALS, BY_PASSWORD]));
  const [version, method] = await take(socket, 2, abandoned);
  if (version !== VERSION) throw new Error("it does not speak SOCKS5");
  if (method === NO_CREDENTIALS) return;
  if (method !== BY_PASSWORD || username === undefined)
    throw new Error(username === undefined ? "it demands a user name and a password" : "it takes neither no credentials nor a password");
  const [user, secret] = [Buffer.from(username), Buffer.from(password)];
  socket.write(Buffer.concat([Buffer.from([PASSWORD_VERSION, user.length]), user, Buffer.from([secret.length]), secret]));
  const [, status] = await take(socket, 2, abandoned);
  if (status !== 0) throw new Error("it does not accept the user name and password");
}

async function request(socket: Socket, host: string, port: number, abandoned: AbortSignal): Promise<void> {
  const destination = isIPv4(host)
    ? Buffer.from([BY_IPV4, ...host.split(".").map(Number)])
    : Buffer.concat([Buffer.from([BY_NAME, Buffer.byteLength(host)]), Buffer.from(host)]);
  socket.write(Buffer.concat([Buffer.from([VERSION, CONNECT, 0]), destination, Buffer.from([port >> 8, port & 0xff])]));
  const [version, status = 1, , kind] = await take(socket, 4, abandoned);
  if (version !== VERSION) throw new Error("it does not speak SOCKS5");
  if (status !== 0) throw new Error(refusals[status] ?? `it answered with code ${status}`);
  // The address that it dialled from says nothing here, but its bytes come before the destination's.
  const length = kind === BY_IPV4 ? 4 : kind === BY_IPV6 ? 16 : ((await take(socket, 1, abandoned))[0] ?? 0);
  await take(socket, length + 2, abandoned);
}

/** Reads exactly that number of bytes, and leaves the rest in the socket. */
async function take(socket: Socket, length: number, abandoned: AbortSignal): Promise<Buffer> {
  const signal = AbortSignal.any([abandoned, AbortSignal.timeout(ANSWER_MS)]);
  for (;;) {
    const bytes = socket.read(length) as Buffer | null;
    if (bytes !== null && bytes.length === length) return bytes;
    if (bytes !== null || socket.readableEnded || socket.destroyed) throw new Error("it ended the connection");
    await waited(socket, signal);
  }
}

function waited(socket: Socket, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const done = (): void => {
      signal.removeEventListener("abort", late);
      socket.off("readable", done).off("end", done).off("close", done);
      resolve();
    };
    const late = (): void => {
      done();
      reject(new Error(`no answer within ${ANSWER_MS} ms`));
    };
    if (signal.aborted) return late();
    signal.addEventListener("abort", late);
    socket.once("readable", done).once("end", done).once("close", done);
  });
}
