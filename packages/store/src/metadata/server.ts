// The metadata server's sockets: at the limit, an idle connection of the peer with the most connections is closed.
import { type AddressInfo, createServer } from "node:net";
import { performance } from "node:perf_hooks";
import { fail } from "@svc/contract/failures.ts";
import { type Answering, answer } from "./answer.ts";
import { Budget } from "./budget.ts";
import { Connection } from "./connection.ts";

const SWEEP_MS = 1000;

export type ServerOptions = Answering & {
  readonly maxValueBytes: number;
  readonly maxConnections: number;
  readonly maxBufferedBytes: number;
  observe(method: string, status: number, seconds: number): void;
};

export type MetadataServer = { readonly url: string; readonly budget: Budget; connections(): number; close(): Promise<void> };

/** @throws SETTING_INVALID when the address cannot be bound. */
export async function listen(host: string, port: number, options: ServerOptions): Promise<MetadataServer> {
  const budget = new Budget(options.maxBufferedBytes);
  const connections = new Set<Connection>();
  const service = {
    budget,
    maxValueBytes: options.maxValueBytes,
    answer: (request: Parameters<typeof answer>[0]) => answer(request, options),
    observe: options.observe,
    closed: (connection: Connection) => connections.delete(connection),
  };
  const server = createServer({ noDelay: true, pauseOnConnect: true }, (socket) => {
    if (connections.size >= options.maxConnections) giveWay(connections);
    connections.add(new Connection(service, socket));
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen({ port, host, backlog: 4096 }, resolve);
  }).catch((error: Error) => fail("SETTING_INVALID", `setting metadata.listen: ${host}:${port}: ${error.message}`, { cause: error }));
  const sweep = setInterval(() => {
    const now = performance.now();
    for (const connection of connections) connection.sweep(now);
    budget.sweep();
  }, SWEEP_MS);
  return {
    url: `http://${host.includes(":") ? `[${host}]` : host}:${(server.address() as AddressInfo).port}`,
    budget,
    connections: () => connections.size,
    async close() {
      clearInterval(sweep);
      const closed = new Promise((resolve) => server.close(resolve));
      for (const connection of connections) connection.finish();
      await closed;
    },
  };
}

/** Closes one connection of the peer with the most: the one that has waited longest for its client. */
function giveWay(connections: ReadonlySet<Connection>): void {
  const counts = new Map<string, number>();
  for (const { peer } of connections) counts.set(peer, (counts.get(peer) ?? 0) + 1);
  const now = performance.now();
  const most = Math.max(...counts.values());
  let chosen: Connection | undefined;
  for (const connection of connections)
    if (counts.get(connection.peer) === most && (chosen === undefined || connection.waitedMs(now) > chosen.waitedMs(now))) chosen = connection;
  chosen?.evict("more clients came than the server may have; this connection had waited longest");
}
