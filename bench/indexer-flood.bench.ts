// The cache indexer under floods: the latency of /health and of an ordinary query, and its memory.

import { spawn } from "node:child_process";
import { connect, type Socket } from "node:net";
import { loadavg } from "node:os";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { endWithUs } from "@svc/harness/children.ts";
import { type IndexerProcess, startOurs } from "./indexer-servers.ts";
import { percentile, type Row, report } from "./report.ts";

const PUBLISHERS_PROCESS = fileURLToPath(new URL("./indexer-flood.ts", import.meta.url));
const SECONDS = 15;
const PROBE_MS = 10;
const MIB = 1024 * 1024;
const BUDGET_MIB = 256;
const SLOW_CLIENTS = 2000;
const PUBLISHERS = 32;
/** The bound of docs/indexer.md: the budget, bodies, their lists, and the program itself. */
const BOUND_MIB = BUDGET_MIB + 128 + 9 * 16 + 250;

const rows: Row[] = [];
const raw: Record<string, unknown> = {};

async function probe(server: IndexerProcess, what: string): Promise<void> {
  const healthMs: number[] = [];
  const queryMs: number[] = [];
  const query = { path: "/query", type: "application/json", body: Buffer.from('{"model":"m","block_size":16,"token_ids":[1,2,3]}') };
  for (const until = performance.now() + SECONDS * 1000; performance.now() < until; await delay(PROBE_MS)) {
    const from = performance.now();
    await server.get("/health");
    const between = performance.now();
    await server.ask(query);
    healthMs.push(between - from);
    queryMs.push(performance.now() - between);
  }
  raw[what] = { loadAverage: loadavg(), healthMs, queryMs };
  const intake = what.includes("publishers");
  const samples = healthMs.length;
  rows.push({ what: `${what}: an ordinary query p50`, value: percentile(queryMs, 0.5), unit: "ms", ...(intake ? { goal: { atMost: 0.5 } } : {}), samples });
  rows.push({ what: `${what}: an ordinary query p99`, value: percentile(queryMs, 0.99), unit: "ms", ...(intake ? { goal: { atMost: 5 } } : {}), samples });
  rows.push({
    what: `${what}: /health p99`,
    value: percentile(healthMs, 0.99),
    unit: "ms",
    goal: { atMost: 100 },
    samples,
    note: `p50 ${percentile(healthMs, 0.5).toFixed(1)} ms`,
  });
  const peakMib = server.peakBytes() / MIB;
  rows.push({ what: `${what}: most memory`, value: peakMib, unit: "MiB", goal: { atMost: BOUND_MIB }, note: `budget ${BUDGET_MIB} MiB` });
}

async function during(what: string, flood: (server: IndexerProcess) => Promise<() => void>): Promise<void> {
  const server = await startOurs([`--indexer.memory_budget_mb=${BUDGET_MIB}`]);
  const end = await flood(server);
  await probe(server, what);
  end();
  await server.close();
}

function opened(server: IndexerProcess): Socket {
  const socket = connect(server.port, "127.0.0.1");
  socket.on("error", () => {}).resume();
  return socket;
}

await during(`${PUBLISHERS} publishers at full intake`, async (server) => {
  const child = spawn(process.execPath, [PUBLISHERS_PROCESS, String(PUBLISHERS)], { stdio: ["ignore", "pipe", "inherit"] });
  endWithUs(child);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const endpoints = JSON.parse((await lines.next()).value as string) as string[];
  for (const [n, endpoint] of endpoints.entries())
    await server.post("/register", { endpoint, type: "vLLM", modelname: "m", instance_id: String(n), block_size: 16, dp_rank: 0 });
  await delay(3000);
  return () => child.kill("SIGKILL");
});

await during("one connection, 16 MB bodies whose last token is wrong", async (server) => {
  const content = `{"model":"m","block_size":16,"token_ids":[${"1,".repeat(8_000_000)}-1]}`;
  const request = Buffer.from(`POST /query HTTP/1.1\r\nHost: x\r\nContent-Length: ${content.length}\r\n\r\n${content}`);
  const socket = opened(server);
  const send = (): void => {
    while (!socket.destroyed && socket.write(request));
  };
  socket.on("drain", send);
  send();
  return () => socket.destroy();
});

await during(`${SLOW_CLIENTS} slow connections`, async (server) => {
  const sockets = new Set<Socket>();
  const begin = (): void => {
    const socket = opened(server);
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
    // Half of the clients send incomplete heads, half send incomplete bodies.
    socket.write(sockets.size % 2 === 0 ? "POST /query HTTP/1.1\r\nHost: x\r\nX-" : `POST /query HTTP/1.1\r\nHost: x\r\nContent-Length: ${16 * MIB}\r\n\r\n[`);
  };
  for (let n = 0; n < SLOW_CLIENTS; n++) begin();
  const trickle = setInterval(() => {
    for (const socket of sockets) socket.write("1");
    while (sockets.size < SLOW_CLIENTS) begin();
  }, 200);
  await delay(1000);
  return () => {
    clearInterval(trickle);
    for (const socket of sockets) socket.destroy();
  };
});

await during("quiet", async () => () => {});

report("indexer-flood", rows, raw);
