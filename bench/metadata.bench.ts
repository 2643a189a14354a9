// The metadata server while clients try to block it: the latency of other requests and its memory; and its rate by durability.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { performance } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { peakBytes } from "./process-usage.ts";
import { percentile, type Row, report } from "./report.ts";
import { metadataLoad } from "./transfer-peers.ts";

const MAIN = fileURLToPath(new URL("../packages/store/src/metadata/main.ts", import.meta.url));
const START = `import(process.argv[1]).then(({ main }) => main(process.argv.slice(2))).then((code) => { process.exitCode = code; })`;
const SLOW_CLIENTS = 2000;
const SECONDS = 8;
const RATE_CONNECTIONS = 16;
const MIB = 1 << 20;
/** The bound of the guide, without the setting for records, because these floods store none. */
const BOUND_BYTES = 150e6 + 3 * 64 * MIB + 4096 * 80 * 1024;

async function startServer(...flags: string[]) {
  const home = makeHome();
  const args = ["--disable-warning=ExperimentalWarning", "-e", START, MAIN, "--listen=127.0.0.1:0", `--home=${home}`, "--log-level=silent", ...flags];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
  const [text] = (await once(child.stdout, "data")) as [Buffer];
  const url = new URL(/ready at (\S+)/.exec(String(text))?.[1] ?? "");
  return {
    url,
    peakBytes: () => peakBytes(child.pid as number),
    async [Symbol.asyncDispose]() {
      const ended = once(child, "exit");
      child.kill("SIGKILL");
      await ended;
      removeHome(home);
    },
  };
}

/** Measures health checks for some seconds, each on a new connection, in milliseconds. */
async function healthMs(url: URL): Promise<number[]> {
  const took: number[] = [];
  for (const until = performance.now() + SECONDS * 1000; performance.now() < until; ) {
    const began = performance.now();
    const socket = connect(Number(url.port), url.hostname, () => socket.write("GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
    await once(socket.resume(), "close");
    took.push(performance.now() - began);
  }
  return took;
}

async function openSockets(url: URL, count: number, first: string): Promise<Socket[]> {
  const sockets: Socket[] = [];
  for (let from = 0; from < count; from += 100)
    await Promise.all(
      Array.from({ length: Math.min(100, count - from) }, async () => {
        const socket = connect(Number(url.port), url.hostname).on("error", () => socket.destroy());
        sockets.push(socket);
        await once(socket, "connect");
        socket.resume().write(first);
      }),
    );
  return sockets;
}

type Abuse = { readonly name: string; run(url: URL): Promise<() => void> };

const abuses: readonly Abuse[] = [
  { name: "no flood", run: async () => () => {} },
  {
    name: `${SLOW_CLIENTS} clients send their heads byte by byte`,
    async run(url) {
      const sockets = await openSockets(url, SLOW_CLIENTS, "GET / HTTP/1.1\r\n");
      let place = 0;
      const timer = setInterval(() => {
        for (let i = 0; i < 100; i++) sockets[place++ % sockets.length]?.write("x");
      }, 10);
      return () => {
        clearInterval(timer);
        for (const socket of sockets) socket.destroy();
      };
    },
  },
  {
    name: "one client sends requests without end",
    async run(url) {
      const many = "GET /metadata?key=none HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1000);
      const [socket] = (await openSockets(url, 1, many)) as [Socket];
      const more = () => {
        while (!socket.destroyed && socket.write(many));
      };
      socket.on("drain", more);
      more();
      return () => socket.destroy();
    },
  },
  {
    name: "200 clients send half of 8 MiB each",
    async run(url) {
      const head = `PUT /metadata?key=slow HTTP/1.1\r\nHost: x\r\nContent-Length: ${8 * MIB}\r\n\r\n`;
      const sockets = await openSockets(url, 200, head);
      const half = Buffer.alloc(4 * MIB, 0x61);
      for (const socket of sockets) socket.write(half);
      return () => {
        for (const socket of sockets) socket.destroy();
      };
    },
  },
];

const rows: Row[] = [];
const raw: Record<string, unknown> = {};
for (const { name, run } of abuses) {
  await using server = await startServer();
  const end = await run(server.url);
  const took = await healthMs(server.url);
  end();
  raw[name] = { took, peakBytes: server.peakBytes() };
  rows.push({
    what: `/health, ${name}: p99`,
    value: percentile(took, 0.99),
    unit: "ms",
    goal: { atMost: 100 },
    samples: took.length,
    note: `p50 ${percentile(took, 0.5).toFixed(1)} ms`,
  });
  rows.push({ what: `memory at most, ${name}`, value: server.peakBytes() / 1e6, unit: "MB", goal: { atMost: Math.round(BOUND_BYTES / 1e6) } });
}
for (const durability of ["memory", "process", "disk"]) {
  await using server = await startServer(`--durability=${durability}`);
  const perSecond = await metadataLoad(new URL("/metadata", server.url).href, RATE_CONNECTIONS, 4);
  rows.push({
    what: `requests, durability ${durability}`,
    value: perSecond / 1000,
    unit: "k/s",
    note: `${RATE_CONNECTIONS} connections, one PUT to nine GETs`,
  });
}
report("metadata", rows, raw);
