// Ports for test servers, from a range that the system never assigns itself, each reserved for one test process at a time.
import { createServer, type ListenOptions } from "node:net";

/** The range is below the kernel's ephemeral ports. */
const FIRST = 20_000;
const COUNT = 12_000;

/**
 * Returns ports without a listener that no other test process gets while this one lives, so that a server can be started late, killed and
 * restarted.
 */
export async function freePorts(count: number): Promise<number[]> {
  const ports: number[] = [];
  for (let tried = 0; ports.length < count; tried++) {
    if (tried === COUNT) throw new Error(`no ${count} free ports between ${FIRST} and ${FIRST + COUNT - 1}`);
    const port = FIRST + Math.floor(Math.random() * COUNT);
    // The lock is an abstract socket, which ends with this process and is specific to the network namespace, like the port.
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
