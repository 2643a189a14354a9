// The console: size and start of its first view, ten thousand sandboxes under events, memory, a hundred pages, a terminal's echo, and the pictures
// of the guide. Needs Debian's chromium-headless-shell and root. `node bench/console.bench.ts [--only pictures|table|memory]`; `memory` feeds a
// million events, which takes nine minutes.
import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { SvcClient } from "@svc/contract/client.ts";
import { CONSOLE_PROTOCOL } from "@svc/contract/console.ts";
import { startNode } from "@svc/harness/node.ts";
import { chromium } from "playwright-core";
import { WebSocket } from "ws";
import { takePictures } from "./console-pictures.ts";
import { cpuSeconds } from "./process-usage.ts";
import { median, percentile, progress, type Row, report } from "./report.ts";

const CHROMIUM = "/usr/bin/chromium-headless-shell";
const KEY = "bench-key-0123456789abcdef0123456789abcdef";
const PAGES = 100;
const MEASURE_MS = 15_000;
/** Events at 2,000 a second, in slices between which the heap is read. */
const SLICES = 5;
const SLICE_MS = 20_000;
const LONG_EVENTS = 1_000_000;
const ECHOES = 200;

const { values: flags } = parseArgs({ options: { only: { type: "string" } } });
const pictures = fileURLToPath(new URL("../docs/pictures/", import.meta.url));
mkdirSync(pictures, { recursive: true });
const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
const rows: Row[] = [];
const raw: Record<string, unknown> = {};
try {
  if (flags.only !== "pictures") {
    await measureTable();
    if (flags.only === undefined) await measureTerminal();
  }
  if (flags.only === undefined || flags.only === "pictures") await takePictures(browser, pictures);
} finally {
  await browser.close();
}
if (flags.only !== "pictures") report("console", rows, raw, flags.only !== undefined);
process.exit(0);

type Halves = { readonly cookie: string; readonly half: string };

async function signIn(url: string, apiKey: string): Promise<Halves> {
  const response = await fetch(`${url}/console/api/sign-in`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ key: apiKey }),
  });
  const { half } = (await response.json()) as { half: string };
  return { cookie: (response.headers.get("set-cookie") ?? "").split(";")[0] ?? "", half };
}

/** Opens a page's socket; resolves once it is signed in. */
async function socketOf(url: string, { cookie, half }: Halves): Promise<WebSocket> {
  const socket = new WebSocket(`${url.replace("http", "ws")}/console/live`, CONSOLE_PROTOCOL, { headers: { cookie, origin: url } });
  await once(socket, "open");
  socket.send(JSON.stringify({ t: "hello", half }));
  await once(socket, "message");
  return socket;
}

async function measureTable(): Promise<void> {
  progress("a server with 10,000 made-up sandboxes");
  const child = fork(fileURLToPath(new URL("./console-server.ts", import.meta.url)), [KEY]);
  const [{ url }] = (await once(child, "message")) as [{ url: string }];
  const pid = child.pid ?? 0;
  const feed = async (perSecond: number) => {
    child.send({ perSecond });
    const [{ events }] = (await once(child, "message")) as [{ events: number }];
    return events;
  };
  const page = await (await browser.newContext({ viewport: { width: 1280, height: 800 } })).newPage();
  await page.goto(`${url}/console`);
  await page.getByLabel("API key").fill(KEY);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("live", { exact: true }).waitFor();

  const cdp = await page.context().newCDPSession(page);
  const measureMemory = async (isLong: boolean) => {
    progress(`memory of the page at 2,000 events a second${isLong ? ", a million of them" : ""}`);
    const heap = async () => {
      await cdp.send("HeapProfiler.collectGarbage");
      return ((await cdp.send("Runtime.getHeapUsage")) as { usedSize: number }).usedSize / 2 ** 20;
    };
    await page.goto(`${url}/console`);
    const first = await feed(2_000);
    await sleep(SLICE_MS);
    const heaps: number[] = [];
    let events = 0;
    while (isLong ? events < LONG_EVENTS : heaps.length < SLICES) {
      heaps.push(await heap());
      await sleep(SLICE_MS);
      events = (await feed(2_000)) - first;
    }
    heaps.push(await heap());
    await feed(0);
    rows.push({
      what: `heap of the page${isLong ? " over a million events" : ""}: growth after its first slice`,
      value: (heaps.at(-1) ?? 0) - (heaps[0] ?? 0),
      unit: "MB",
      goal: { atMost: 5 },
      note: `${heaps[0]?.toFixed(1)} MB, at most ${Math.max(...heaps).toFixed(1)} MB, ${events} events`,
    });
    raw["heaps"] = heaps;
  };
  if (flags.only === "memory") {
    await measureMemory(true);
    return void child.disconnect();
  }
  let bytes = 0;
  await cdp.send("Network.enable");
  await cdp.send("Network.setCacheDisabled", { cacheDisabled: true });
  cdp.on("Network.loadingFinished", ({ encodedDataLength }) => {
    bytes += encodedDataLength;
  });
  const starts: number[] = [];
  for (let round = 0; round < 5; round++) {
    bytes = 0;
    const started = performance.now();
    await page.goto(`${url}/console`);
    await page.getByText("live", { exact: true }).waitFor();
    starts.push(performance.now() - started);
  }
  rows.push({ what: "first view: page, script and style, compressed", value: bytes / 1024, unit: "KB", goal: { atMost: 150 } });
  rows.push({ what: "first view: from the address to a live page, median", value: median(starts), unit: "ms", goal: { atMost: 500 }, samples: starts.length });
  await page.getByRole("table").waitFor();

  progress("the table at 60 events a second, scrolled meanwhile");
  await feed(60);
  await sleep(2_000);
  await browser.startTracing(page, { categories: ["devtools.timeline"] });
  const frames = (await page.evaluate(`new Promise((done) => {
    const frames = [];
    const grid = document.querySelector(".grid");
    let last = performance.now();
    const end = last + ${MEASURE_MS};
    const step = (now) => {
      frames.push(now - last);
      last = now;
      grid.scrollTop += 40;
      if (now < end) requestAnimationFrame(step); else done(frames);
    };
    requestAnimationFrame(step);
  })`)) as number[];
  const trace = JSON.parse((await browser.stopTracing()).toString("utf8")) as { traceEvents: { name: string; tdur?: number }[] };
  // The processor time of each entry into our script, in milliseconds.
  const tasks = trace.traceEvents
    .filter(({ name }) => /^(FunctionCall|TimerFire|FireAnimationFrame|EventDispatch|WebSocketReceive)$/.test(name))
    .map(({ tdur = 0 }) => tdur / 1000);
  rows.push({
    what: "10,000 rows, 60 events/s, scrolling: frame p99",
    value: percentile(frames, 0.99),
    unit: "ms",
    goal: { atMost: 50 },
    samples: frames.length,
  });
  rows.push({
    what: "10,000 rows, 60 events/s, scrolling: longest task of our script, processor time",
    value: Math.max(0, ...tasks),
    unit: "ms",
    goal: { atMost: 50 },
    samples: tasks.length,
  });
  raw["frames"] = frames;

  if (flags.only === "table") return void child.disconnect();
  await measureMemory(false);
  await page.context().close();

  progress(`${PAGES} open pages at 60 events a second`);
  const share = async () => {
    const [before, began] = [cpuSeconds(pid), performance.now()];
    await sleep(MEASURE_MS);
    return (100 * (cpuSeconds(pid) - before)) / ((performance.now() - began) / 1000);
  };
  await feed(60);
  await sleep(2_000);
  const alone = await share();
  const halves = await signIn(url, KEY);
  const sockets = await Promise.all(Array.from({ length: PAGES }, () => socketOf(url, halves)));
  let batches = 0;
  for (const socket of sockets) socket.on("message", (data) => (batches += String(data).startsWith('{"t":"batch"') ? 1 : 0));
  await sleep(5_000);
  batches = 0;
  const with100 = await share();
  rows.push({
    what: `${PAGES} pages: processor of the server`,
    value: with100 - alone,
    unit: "%",
    goal: { atMost: 5 },
    note: `${with100.toFixed(1)} % with them, ${alone.toFixed(1)} % with none; ${(batches / PAGES / (MEASURE_MS / 1000)).toFixed(1)} batches/s each`,
  });
  for (const socket of sockets) socket.terminate();
  child.disconnect();
}

/** Interleaves keys through the console's socket and through the client that `svc connect` uses, in the same shell. */
async function measureTerminal(): Promise<void> {
  progress("a terminal's echo, by the console and as svc connect does it");
  await using node = await startNode({ runtime: "gvisor" });
  const client = new SvcClient({ baseURL: node.url, apiKey: node.apiKey });
  const sandbox = await client.create({ templateID: "base" });
  const socket = await socketOf(node.url, await signIn(node.url, node.apiKey));
  let onBytes: () => void = () => {};
  socket.on("message", (_, isBinary) => isBinary && onBytes());
  const echoed = async (send: () => Promise<void> | void, arm: (done: () => void) => void) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    arm(resolve);
    const began = performance.now();
    await Promise.all([send(), promise]);
    return performance.now() - began;
  };
  const armSocket = (done: () => void) => {
    onBytes = done;
  };
  await echoed(
    () => socket.send(JSON.stringify({ t: "open", id: 1, kind: "terminal", sandboxID: sandbox.sandboxID, session: "bench", cols: 80, rows: 24 })),
    armSocket,
  );
  const envd = client.envd(sandbox);
  let pid = 0;
  let onDirect: () => void = () => {};
  const direct = envd.start({ cmd: "/bin/bash", args: ["-i", "-l"], pty: { cols: 80, rows: 24 }, envs: { TERM: "xterm" } });
  void (async () => {
    for await (const event of direct) {
      if (event.type === "start") ({ pid } = event);
      else if (event.type === "pty") onDirect();
    }
  })().catch(() => {});
  await sleep(2_000);
  const [byConsole, byConnect]: [number[], number[]] = [[], []];
  for (let echo = 0; echo < ECHOES; echo++) {
    byConsole.push(await echoed(() => socket.send(JSON.stringify({ t: "input", id: 1, data: "x" })), armSocket));
    await sleep(20);
    byConnect.push(
      await echoed(
        () => envd.sendInput({ pid }, "pty", Buffer.from("x")),
        (done) => {
          onDirect = done;
        },
      ),
    );
    await sleep(20);
  }
  rows.push({
    what: "terminal, key to echo: behind svc connect, p50",
    value: median(byConsole) - median(byConnect),
    unit: "ms",
    goal: { atMost: 10 },
    samples: ECHOES,
    note: `console ${median(byConsole).toFixed(1)} ms, svc connect ${median(byConnect).toFixed(1)} ms`,
  });
  Object.assign(raw, { byConsole, byConnect });
  socket.terminate();
  envd.close();
}
