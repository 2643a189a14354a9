// The indexers that the bench drives, each in its own process: ours, and the Dynamo crate if cargo can build it.

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { Agent, request } from "node:http";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { endWithUs } from "@svc/harness/children.ts";
import { cpuSeconds, peakBytes } from "./process-usage.ts";

const MAIN = fileURLToPath(new URL("../packages/indexer/src/main.ts", import.meta.url));
const PEER = fileURLToPath(new URL("./peers/indexer", import.meta.url));
const START_MS = 60_000;

export type Form = { readonly what: string; readonly path: string; readonly body: Buffer; readonly type: string };

export class IndexerProcess {
  readonly name: string;
  readonly #child: ChildProcess;
  readonly port: number;
  readonly #home: string;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 1 });

  constructor(name: string, child: ChildProcess, port: number, home: string) {
    this.name = name;
    this.#child = child;
    this.port = port;
    this.#home = home;
    endWithUs(child);
  }

  ask({ path, body, type }: Omit<Form, "what">): Promise<string> {
    return new Promise((resolve, reject) => {
      const headers = { "content-type": type, "content-length": body.length };
      const sent = request({ agent: this.#agent, host: "127.0.0.1", port: this.port, path, method: body.length === 0 ? "GET" : "POST", headers }, (answer) => {
        const chunks: Buffer[] = [];
        answer.on("data", (chunk: Buffer) => chunks.push(chunk));
        answer.on("end", () => resolve(Buffer.concat(chunks).toString()));
      });
      sent.once("error", reject);
      sent.end(body);
    });
  }

  get(path: string): Promise<string> {
    return this.ask({ path, body: Buffer.alloc(0), type: "application/json" });
  }

  post(path: string, value: unknown): Promise<string> {
    return this.ask({ path, body: Buffer.from(JSON.stringify(value)), type: "application/json" });
  }

  cpuSeconds(): number {
    return cpuSeconds(this.#child.pid as number);
  }

  peakBytes(): number {
    return peakBytes(this.#child.pid as number);
  }

  /** Returns the CPU time per request in microseconds, and the round trips. */
  async measure(form: Form, rounds: number): Promise<{ cpuUs: number; roundTripsUs: number[] }> {
    for (let i = 0; i < rounds / 4; i++) await this.ask(form);
    const before = this.cpuSeconds();
    const roundTripsUs: number[] = [];
    for (let i = 0; i < rounds; i++) {
      const from = performance.now();
      await this.ask(form);
      roundTripsUs.push((performance.now() - from) * 1000);
    }
    return { cpuUs: ((this.cpuSeconds() - before) / rounds) * 1e6, roundTripsUs };
  }

  async close(): Promise<void> {
    this.#agent.destroy();
    const ended = new Promise((resolve) => this.#child.once("exit", resolve));
    this.#child.kill("SIGTERM");
    const timer = setTimeout(() => this.#child.kill("SIGKILL"), 10_000);
    await ended;
    clearTimeout(timer);
    rmSync(this.#home, { recursive: true, force: true });
  }
}

export async function startOurs(more: readonly string[] = []): Promise<IndexerProcess> {
  const home = mkdtempSync(join(tmpdir(), "svc-bench-"));
  const port = await freePort();
  const flags = [`--listen=127.0.0.1:${port}`, `--home=${home}`, "--indexer.snapshot_interval_seconds=0", "--log-level=fatal", ...more];
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", MAIN, ...flags], { stdio: ["ignore", "ignore", "inherit"] });
  return answering(new IndexerProcess("svc", child, port, home));
}

/** Returns undefined, with a message, if cargo is missing or the crate does not build. */
export async function startPeer(blockSize: number): Promise<IndexerProcess | undefined> {
  const target = process.env["SVC_BENCH_PEER_TARGET"] ?? join(process.env["SVC_CACHE"] ?? tmpdir(), "bench-indexer-peer");
  const built = spawnSync("cargo", ["build", "--release", "--quiet", "--target-dir", target], {
    cwd: PEER,
    stdio: ["ignore", "ignore", "pipe"],
    encoding: "utf8",
  });
  if (built.status !== 0) {
    process.stdout.write(`the peer dynamo-kv-router is left out: ${built.error === undefined ? built.stderr.slice(-300) : "cargo is not installed"}\n`);
    return undefined;
  }
  const home = mkdtempSync(join(tmpdir(), "svc-bench-"));
  const port = await freePort();
  const child = spawn(join(target, "release/indexer-peer"), [String(port), String(blockSize), "m"], { stdio: "ignore" });
  return answering(new IndexerProcess("dynamo-kv-router", child, port, home));
}

async function answering(server: IndexerProcess): Promise<IndexerProcess> {
  for (const until = performance.now() + START_MS; performance.now() < until; await delay(50)) {
    const answer = await server.get("/health").catch(() => undefined);
    if (answer !== undefined) return server;
  }
  throw new Error(`${server.name} did not answer within ${START_MS} ms`);
}

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address() as { port: number };
      probe.close(() => resolve(port));
    });
  });
}
