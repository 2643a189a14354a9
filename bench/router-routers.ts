// Starts what the router's benches measure: engines, svc's own router with its indexer, and the routers of others where they are installed.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { progress } from "./report.ts";

const file = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const PEERS = process.env["SVC_PYTHON_PEERS"] ?? "";
const READY_MS = 120_000;

export type Router = { readonly name: string; readonly url: string; readonly pid: number; readonly isOurs: boolean };

export class World implements AsyncDisposable {
  readonly #stack = new AsyncDisposableStack();
  readonly home = mkdtempSync(join(tmpdir(), "svc-bench-router-"));

  constructor() {
    // The programs of others read no input that could end.
    for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, () => process.exit(1));
    this.#stack.defer(() => rmSync(this.home, { recursive: true, force: true }));
  }

  start(command: string, args: readonly string[], env: Readonly<Record<string, string>> = {}): ChildProcess {
    const child = spawn(command, args, { stdio: ["pipe", "pipe", "ignore"], env: { ...process.env, ...env } });
    child.stdout?.on("data", () => {});
    const kill = () => child.kill("SIGKILL");
    process.once("exit", kill);
    this.#stack.defer(async () => {
      process.off("exit", kill);
      if (child.exitCode !== null || child.signalCode !== null) return;
      child.kill("SIGKILL");
      await once(child, "exit");
    });
    return child;
  }

  /** Each process has this many addresses. */
  async engines(processes: number, each: number, tokenMs = 100, tokens = 100): Promise<{ children: ChildProcess[]; urls: string[][] }> {
    const children = Array.from({ length: processes }, () =>
      this.start(process.execPath, [file("./router-engines.ts"), String(each), String(tokenMs), String(tokens)]),
    );
    const urls = await Promise.all(
      children.map(async (child) => {
        const [line] = (await once(child.stdout as NonNullable<typeof child.stdout>, "data")) as [Buffer];
        return (JSON.parse(line.toString()) as number[]).map((port) => `http://127.0.0.1:${port}`);
      }),
    );
    return { children, urls };
  }

  async indexer(): Promise<string> {
    const port = await freePort();
    this.start(process.execPath, [file("../packages/indexer/src/main.ts"), `--listen=127.0.0.1:${port}`, `--home=${this.home}`]);
    return answering(`http://127.0.0.1:${port}`);
  }

  async svc(urls: readonly string[], flags: readonly string[] = [], name = "svc router"): Promise<Router> {
    const port = await freePort();
    const engines = urls.map((url, at) => `--engine=e${at}=${url}`);
    const child = this.start(process.execPath, [
      file("../packages/router/src/main.ts"),
      `--listen=127.0.0.1:${port}`,
      "--log-level=error",
      ...engines,
      ...flags,
    ]);
    return { name, url: await answering(`http://127.0.0.1:${port}`), pid: child.pid as number, isOurs: true };
  }

  /** Undefined, with a word on stderr, where it is not installed or does not start. */
  async peer(which: "sglang-router" | "vllm-router", urls: readonly string[], policy = "cache_aware"): Promise<Router | undefined> {
    if (!existsSync(join(PEERS, which.replace("-", "_")))) {
      progress(`${which} is not installed (./svc setup --only python-peers): its rows are left out`);
      return undefined;
    }
    const [port, metrics] = [await freePort(), await freePort()];
    const child = this.start("python3", [file("./peers/router_peer.py"), which, String(port), String(metrics), policy, ...urls], { PYTHONPATH: PEERS });
    try {
      const url = await answering(`http://127.0.0.1:${port}`, child);
      const body = JSON.stringify({ model: "m", messages: [{ role: "user", content: "x" }] });
      for (const deadline = Date.now() + READY_MS; ; ) {
        const { status } = await fetch(`${url}/v1/chat/completions`, { method: "POST", body, headers: { "content-type": "application/json" } });
        if (status === 200) break;
        if (Date.now() > deadline) throw new Error(`it answers ${status}`);
        await sleep(500);
      }
      return { name: which, url, pid: child.pid as number, isOurs: false };
    } catch (error) {
      progress(`${which} does not start: ${(error as Error).message}; its rows are left out`);
      return undefined;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise<void>((resolve) => server.close(() => resolve()));
  return port;
}

async function answering(url: string, child?: ChildProcess): Promise<string> {
  for (const deadline = Date.now() + READY_MS; ; await sleep(100)) {
    const status = await fetch(`${url}/health`).then(
      (answer) => answer.status,
      () => 0,
    );
    if (status === 200) return url;
    if (child !== undefined && child.exitCode !== null) throw new Error(`it ended with ${child.exitCode}`);
    if (Date.now() > deadline) throw new Error(`nothing answers at ${url}`);
  }
}
