// Runs other people's programs in a network of their own, where one server of the test is on its usual loopback port and nothing else exists.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

//  program ──127.0.0.1:PORT──▶ relay, in the namespace ──unix socket──▶ this process ──127.0.0.1:PORT──▶ the server

export type LoneNetwork = Disposable & {
  /** Returns the command line that runs a program there. */
  inside(command: string, args: readonly string[]): readonly [command: string, args: readonly string[]];
};

/** Needs root, unshare and ip. */
export function openLoneNetwork(port: number): LoneNetwork {
  const folder = mkdtempSync(join(tmpdir(), "svc-lone-"));
  const [socket, relay] = [join(folder, "server"), join(folder, "relay.mjs")];
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (client) => {
    const far = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
    for (const [one, other] of [
      [client, far],
      [far, client],
    ] as const) {
      sockets.add(one.on("error", () => other.destroy()).once("close", () => sockets.delete(one) && other.destroySoon()));
      one.pipe(other);
    }
  }).listen(socket);
  // The relay's first connection carries no data. It breaks when this process ends or the network is disposed, and the relay then exits, too.
  writeFileSync(
    relay,
    `import { connect, createServer } from "node:net";
connect(${JSON.stringify(socket)}).on("error", () => process.exit()).on("close", () => process.exit());
createServer({ allowHalfOpen: true }, (client) => {
  const far = connect({ path: ${JSON.stringify(socket)}, allowHalfOpen: true });
  for (const [one, other] of [[client, far], [far, client]]) one.on("error", () => other.destroy()).on("close", () => other.destroySoon()).pipe(other);
}).listen(${port}, "127.0.0.1", () => process.kill(Number(process.argv[2]), "SIGUSR1"));
`,
  );
  // The program begins once the relay listens.
  const prepared = `ip link set lo up && ip route add blackhole default && trap ready=1 USR1 && { '${process.execPath}' '${relay}' $$ </dev/null >/dev/null 2>&1 & }
for tries in $(seq 600); do [ -n "$ready" ] && exec "$@"; sleep 0.1; done; echo "the relay did not start" >&2; exit 1`;
  return {
    inside: (command, args) => ["unshare", ["--net", "sh", "-c", prepared, "lone", command, ...args]],
    [Symbol.dispose]() {
      server.close();
      for (const each of sockets) each.destroy();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
