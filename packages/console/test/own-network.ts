// Gives a browser its own network namespace. Chromium drops all pending requests when any network interface in its namespace appears or
// disappears, and the sandboxes of other tests make that happen all the time.
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

//  Chromium ──SOCKS5──▶ relay, in a namespace with only a loopback ──unix socket──▶ this process ──▶ servers of the test

const PORT = 1080;
const VERSION = 5;
const CONNECT = 1;
const SUCCEEDED = Buffer.from([VERSION, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
const REFUSED = Buffer.from([VERSION, 5, 0, 1, 0, 0, 0, 0, 0, 0]);

export type OwnNetwork = Disposable & {
  /** A program that starts the browser in the namespace. */
  readonly program: string;
  readonly args: readonly string[];
};

export function openOwnNetwork(browser: string): OwnNetwork {
  const folder = mkdtempSync(join(tmpdir(), "svc-browser-"));
  const [socket, relay, program] = [join(folder, "socks"), join(folder, "relay.mjs"), join(folder, "browser")];
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    sockets.add(client);
    client.on("error", () => client.destroy()).once("close", () => sockets.delete(client));
    void serve(client).catch(() => client.destroy());
  }).listen(socket);
  // The relay's first connection carries no data. It breaks when this process ends, and the relay then exits, too.
  writeFileSync(
    relay,
    `import { connect, createServer } from "node:net";
connect(${JSON.stringify(socket)}).on("error", () => process.exit()).on("close", () => process.exit());
createServer((client) => {
  const far = connect(${JSON.stringify(socket)});
  client.pipe(far).pipe(client);
  for (const [one, other] of [[client, far], [far, client]]) one.on("error", () => other.destroy()).on("close", () => other.destroy());
}).listen(${PORT}, "127.0.0.1");
`,
  );
  // The relay must keep none of the browser's pipes open, 3 and 4 being the debugger's: playwright waits half a minute for their end.
  const inside = `ip link set lo up && { '${process.execPath}' '${relay}' </dev/null >/dev/null 2>&1 3<&- 4>&- & exec '${browser}' "$@"; }`;
  writeFileSync(program, `#!/bin/sh\nexec unshare --net sh -c ${JSON.stringify(inside).replaceAll("$", "\\$")} browser "$@"\n`);
  chmodSync(program, 0o700);
  return {
    program,
    args: [`--proxy-server=socks5://127.0.0.1:${PORT}`, "--proxy-bypass-list=<-loopback>"],
    [Symbol.dispose]() {
      server.close();
      for (const each of sockets) each.destroy();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Serves one SOCKS5 connection without authentication; localhost and names below it are resolved to this machine. */
async function serve(client: Socket): Promise<void> {
  const read = reader(client);
  const [, methods = 0] = await read(2);
  await read(methods);
  client.write(Buffer.from([VERSION, 0]));
  const [, command, , kind] = await read(4);
  let host: string;
  if (kind === 1) host = [...(await read(4))].join(".");
  else if (kind === 3) host = (await read((await read(1))[0] ?? 0)).toString("latin1");
  else host = "::1";
  const port = (await read(2)).readUInt16BE();
  if (command !== CONNECT) return void client.end(REFUSED);
  const far = connect(port, /(^|\.)localhost$/.test(host) ? "127.0.0.1" : host);
  far.once("connect", () => {
    client.write(SUCCEEDED);
    client.pipe(far).pipe(client);
  });
  far.once("error", () => (far.connecting || far.pending ? client.end(REFUSED) : client.destroy())).once("close", () => client.destroy());
  client.once("close", () => far.destroy());
}

/** Returns a function that reads exactly a number of bytes; it serves the handshake, before the stream is piped. */
function reader(client: Socket): (bytes: number) => Promise<Buffer> {
  return async (bytes) => {
    for (;;) {
      const chunk = bytes === 0 ? Buffer.alloc(0) : (client.read(bytes) as Buffer | null);
      if (chunk !== null) return chunk;
      await new Promise<void>((resolve, reject) => {
        client.once("readable", resolve).once("close", () => reject(new Error("the client has gone")));
      });
    }
  };
}
