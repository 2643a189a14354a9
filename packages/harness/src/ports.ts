// Ports for servers of tests: from a range that the system gives to nobody by itself, each held by one test process at a time.
import { createServer, type ListenOptions } from "node:net";

/** Below the ports that the kernel gives to connections and to servers without a port of their own. */
const FIRST = 20_000;
const COUNT = 12_000;

/**
 * Ports that nobody listens on, and that no other test process is given while this one lives: a server may be started there late,
 * killed and started again.
 */
export async function freePorts(count: number): Promise<number[]> {
  const ports: number[] = [];
  for (let tried = 0; ports.length < count; tried++) {
    if (tried === COUNT) throw new Error(`no ${count} free ports between ${FIRST} and ${FIRST + COUNT - 1}`);
    const port = FIRST + Math.floor(Math.random() * COUNT);
    // The lock is a name that goes with this process, and that other network namespaces have for themselves, as they have the port.
    if (!(await listens({ path: `\0svc-test-port-${port}` }, "held"))) continue;
    if (await listens({ port, host: "0.0.0.0" }, "tried")) ports.push(port);
  }
  return ports;
}

function listens(at: ListenOptions, use: "held" | "tried"): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer((socket) => socket.destroy());
    server.once("error", () => resolve(false));
    server.listen(at, () => {
      if (use === "tried") return void server.close(() => resolve(true));
      server.unref();
      resolve(true);
    });
  });
}
