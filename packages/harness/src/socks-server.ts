// A SOCKS5 proxy for tests: it notes each request, and can misbehave.
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { createServer as createSecureServer } from "node:tls";

export type Asked = { readonly host: string; readonly port: number; readonly username?: string; readonly password?: string };
export type Behaviour = "works" | "garbage" | "refuses" | "hangs up";

export interface SocksServer extends AsyncDisposable {
  /** `host:port`. */
  readonly address: string;
  behaviour: Behaviour;
  /** Returns the connections that clients requested since the last call, each once. */
  asked(): Asked[];
}

export type SocksOptions = {
  readonly names: Readonly<Record<string, string>>;
  readonly password?: string;
  /** With it, it speaks TLS. */
  readonly tls?: { readonly key: string; readonly cert: string };
};

/** With a password it demands it, of the user `user`. Names lead to `names`, and addresses to themselves. Ends all connections when it is disposed. */
export async function startSocksServer({ names, password, tls }: SocksOptions): Promise<SocksServer> {
  const sockets = new Set<Socket>();
  let asked: Asked[] = [];
  const onClient = (client: Socket): void => {
    sockets.add(client.on("close", () => sockets.delete(client)).on("error", () => client.destroy()));
    void serve(client).catch(() => client.destroy());
  };
  const server =
    tls === undefined ? createServer({ allowHalfOpen: true }, onClient) : createSecureServer({ ...tls }, onClient).on("tlsClientError", () => undefined);

  async function serve(client: Socket): Promise<void> {
    const { behaviour } = made;
    if (behaviour === "hangs up") return void client.destroy();
    if (behaviour === "garbage") return void client.end("HTTP/1.1 400 Bad Request\r\n\r\n");
    const [, count = 0] = await take(client, 2);
    const methods = await take(client, count);
    const method = password === undefined ? 0 : 2;
    if (!methods.includes(method)) return void client.end(Buffer.from([5, 0xff]));
    client.write(Buffer.from([5, method]));
    const login = password === undefined ? undefined : await loginOf(client);
    if (login !== undefined) {
      const isRight = login.username === "user" && login.password === password;
      client.write(Buffer.from([1, isRight ? 0 : 1]));
      if (!isRight) return void client.end();
    }
    const [, , , kind] = await take(client, 4);
    const host = kind === 1 ? (await take(client, 4)).join(".") : (await take(client, (await take(client, 1))[0] ?? 0)).toString();
    const port = (await take(client, 2)).readUInt16BE();
    asked.push({ host, port, ...login });
    const to = kind === 1 ? host : names[host];
    if (to === undefined || behaviour === "refuses") return void client.end(Buffer.from([5, 2, 0, 1, 0, 0, 0, 0, 0, 0]));
    const upstream = connect({ host: to, port, allowHalfOpen: true });
    sockets.add(upstream.on("close", () => sockets.delete(upstream)).on("error", () => client.destroy()));
    await once(upstream, "connect");
    // In two writes, as a proxy on a busy machine may answer.
    client.write(Buffer.from([5, 0, 0, 1]));
    client.write(Buffer.from([0, 0, 0, 0, 0, 0]));
    client.pipe(upstream);
    upstream.pipe(client);
    client.once("close", () => upstream.destroy());
    upstream.once("close", () => client.destroySoon());
  }

  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const made: SocksServer = {
    address: `127.0.0.1:${(server.address() as { port: number }).port}`,
    behaviour: "works",
    asked() {
      const before = asked;
      asked = [];
      return before;
    },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
  return made;
}

async function loginOf(client: Socket): Promise<{ username: string; password: string }> {
  const [, userLength = 0] = await take(client, 2);
  const username = (await take(client, userLength)).toString();
  const [length = 0] = await take(client, 1);
  return { username, password: (await take(client, length)).toString() };
}

async function take(socket: Socket, length: number): Promise<Buffer> {
  for (;;) {
    const bytes = length === 0 ? Buffer.alloc(0) : (socket.read(length) as Buffer | null);
    if (bytes !== null) return bytes;
    await once(socket, "readable");
    if (socket.readableEnded) throw new Error("the client ended the connection");
  }
}
