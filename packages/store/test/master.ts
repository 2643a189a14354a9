// Starts masters for tests: ours in a process of its own, and Mooncake's from its wheel.

import { type ChildProcess, spawn } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { endWithUs } from "@svc/harness/children.ts";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { RpcClient } from "../src/rpc/client.ts";

const MAIN = fileURLToPath(new URL("../src/master/main.ts", import.meta.url));
const BRANDS = ["svc", "mooncake"];

export type TestMaster = {
  readonly url: string;
  readonly rpcPort: number;
  readonly home: string;
  readonly pid: number;
  /** Returns its stderr. */
  log(): string;
  rpc(token?: string): Promise<RpcClient>;
  kill(signal?: NodeJS.Signals): Promise<number | null>;
  /** Starts it again on the same ports and home, with `more` flags. */
  start(more?: readonly string[]): Promise<void>;
} & AsyncDisposable;

export type MasterSetup = { readonly flags?: readonly string[]; readonly home?: string; readonly level?: string; readonly env?: NodeJS.ProcessEnv };

export async function startMaster({ flags = [], home: given, level = "warn", env = {} }: MasterSetup = {}): Promise<TestMaster> {
  const home = given ?? makeHome();
  let child: ChildProcess | undefined;
  const [httpPort, rpcPort = 0] = await freePorts(2);
  let url = "";
  let said = "";
  async function start(more: readonly string[] = []): Promise<void> {
    const own = [
      `--listen=127.0.0.1:${httpPort}`,
      `--rpc_port=${rpcPort}`,
      "--rpc_address=127.0.0.1",
      `--home=${home}`,
      `--brand=${BRANDS}`,
      `--log-level=${level}`,
      // A holder that stalls for a while is not a fault; tests of silence set times of their own.
      "--client_ttl=20s",
      "--store.suspect_after_ms=8000",
    ];
    const started = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", MAIN, ...own, ...flags, ...more], {
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, ...env },
    });
    child = started;
    endWithUs(started);
    started.stderr.setEncoding("utf8").on("data", (chunk: string) => void (said += chunk));
    await new Promise<void>((resolve, reject) => {
      let text = "";
      started.stdout.setEncoding("utf8").on("data", (chunk: string) => {
        text += chunk;
        url = /ready at (\S+)/.exec(text)?.[1] ?? url;
        if (/ready at/.test(text)) resolve();
      });
      started.once("exit", (code) => reject(new Error(`the master ended with ${code}: ${said}`)));
    });
  }
  async function kill(signal: NodeJS.Signals = "SIGKILL"): Promise<number | null> {
    const ending = child;
    child = undefined;
    if (ending === undefined || ending.exitCode !== null || ending.signalCode !== null) return ending?.exitCode ?? null;
    const ended = new Promise<number | null>((resolve) => ending.once("exit", resolve));
    ending.kill(signal);
    return ended;
  }
  await start();
  return {
    get url() {
      return url;
    },
    rpcPort,
    get pid() {
      return child?.pid ?? 0;
    },
    home,
    log: () => said,
    rpc: (token) => RpcClient.connect("127.0.0.1", rpcPort, { token }),
    kill,
    start,
    async [Symbol.asyncDispose]() {
      await kill();
      if (given === undefined) removeHome(home);
    },
  };
}

/** Starts Mooncake's own master; returns its ports and its process. */
export async function startMooncakeMaster(flags: readonly string[] = []): Promise<{ rpcPort: number; httpPort: number; pid: number } & AsyncDisposable> {
  const [rpcPort = 0, httpPort = 0] = await freePorts(2);
  const program = join(process.env["SVC_PYTHON_CLIENTS"] ?? "", "mooncake/mooncake_master");
  const child = spawn(program, [`--rpc_port=${rpcPort}`, `--metrics_port=${httpPort}`, "--metrics_host=127.0.0.1", "--rpc_address=127.0.0.1", ...flags], {
    stdio: "ignore",
    env: { ...process.env, PYTHONPATH: process.env["SVC_PYTHON_CLIENTS"] },
  });
  endWithUs(child);
  for (const until = Date.now() + 60_000; ; await new Promise((resolve) => setTimeout(resolve, 50))) {
    if (child.exitCode !== null) throw new Error(`Mooncake's master ended with ${child.exitCode}`);
    const client = await RpcClient.connect("127.0.0.1", rpcPort, { brand: "mooncake" }).catch(() => undefined);
    client?.close();
    if (client !== undefined) break;
    if (Date.now() > until) throw new Error("Mooncake's master does not listen");
  }
  return {
    rpcPort,
    httpPort,
    pid: child.pid ?? 0,
    async [Symbol.asyncDispose]() {
      const ended = new Promise((resolve) => child.once("exit", resolve));
      child.kill("SIGKILL");
      await ended;
    },
  };
}
