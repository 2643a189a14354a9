// Starts a real node as a separate process, and controls it for tests: call, kill, restart, stop.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Answer, call, callForAnswer } from "@svc/contract/call.ts";
import type { Input, Operation, Output } from "@svc/contract/operation.ts";
import { deleteSandbox, listSandboxes } from "@svc/contract/sandbox.ts";
import { confine, NO_RESOLVER, unconfine } from "./confine.ts";
import { makeHome, removeHome } from "./home.ts";
import { isBare } from "./leftovers.ts";
import { inside, type Namespace } from "./namespaces.ts";
import { freePorts } from "./ports.ts";
import { ended, endProcess, type Started, startProcess } from "./server-process.ts";

const MAIN = fileURLToPath(new URL("../../sandbox/src/node/main.ts", import.meta.url));
const MAIN_IN_TREE = "packages/sandbox/src/node/main.ts";

/** If the node does not answer within this time, its sandboxes are ended without it. */
const DELETE_MS = 15_000;

export type NodeOptions = {
  readonly runtime?: "gvisor" | "runc" | "bubblewrap";
  readonly env?: Readonly<Record<string, string>>;
  /** The root of another version's tree. */
  readonly tree?: string | undefined;
  /** Additional flags, such as `--pool.size=0`. The pool and precreated sandboxes are off by default. */
  readonly flags?: readonly string[];
  /** A home that the caller creates and removes. */
  readonly home?: string;
  /** If true, its sandboxes use the host's default route and resolvers; otherwise their packets never leave the machine. */
  readonly internet?: boolean;
  /** The network namespace to run in, which leads nowhere else. */
  readonly namespace?: Namespace;
  /** The flags choose TLS: `url` begins with https://, and the calls of the test go to `localURL`. */
  readonly isSecure?: boolean;
};

/** `tree` defaults to that of this test. */
type StartOptions = Pick<NodeOptions, "env" | "flags" | "tree">;

export type TestNode = {
  readonly home: string;
  readonly url: string;
  /** Where programs of this machine reach it by plain HTTP, also if `url` needs TLS. */
  readonly localURL: string;
  readonly port: number;
  readonly apiKey: string;
  readonly pid: number;
  /** True if it stopped by itself or was killed. */
  readonly hasEnded: boolean;
  /** Returns everything that the node has written to stderr: its log. */
  log(): string;
  call<T extends Operation>(operation: T, input: Input<T>): Promise<Output<T>>;
  callForAnswer<T extends Operation>(operation: T, input: Input<T>): Promise<Answer<T>>;
  /** Ends the process with this signal and waits for its end; sandboxes continue. */
  kill(signal?: NodeJS.Signals): Promise<void>;
  /** Starts a new process on the same home and port. */
  start(options?: StartOptions): Promise<void>;
  restart(signal?: NodeJS.Signals, options?: StartOptions): Promise<void>;
  /** Stops the node, destroys all its sandboxes and removes the home. */
  [Symbol.asyncDispose](): Promise<void>;
};

/** Starts a node that accepts requests on its own port. */
export async function startNode(options: NodeOptions = {}): Promise<TestNode> {
  const home = options.home ?? makeHome();
  let process_: Started | undefined;
  // The port stays reserved while the node is down.
  let [port = 0] = await freePorts(1);
  let logged = "";
  const { namespace } = options;
  const host = namespace?.host ?? "127.0.0.1";

  async function start(next: StartOptions = {}): Promise<void> {
    const runtime = options.runtime === undefined ? [] : [`--runtime=${options.runtime}`];
    const given = [...(options.flags ?? []), ...(next.flags ?? [])];
    const isAlone = options.internet !== true;
    const flags = [
      `--listen=${host}:${port}`,
      `--home=${home}`,
      ...runtime,
      "--pool.size=0",
      "--pool.templates=",
      "--pool.precreated=0",
      "--network.pool_size=0",
      ...(isAlone && !given.some((flag) => flag.startsWith("--network.dns=")) ? [`--network.dns=${NO_RESOLVER}`] : []),
      ...given,
    ];
    const onLog = (text: string) => {
      logged += text;
    };
    process_ = await startProcess(next.tree === undefined ? MAIN : join(next.tree, MAIN_IN_TREE), flags, { ...options.env, ...next.env }, onLog, namespace);
    port = process_.port;
    if (isAlone && namespace === undefined) confine(home);
  }

  async function kill(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    if (process_ === undefined) return;
    const ending = process_;
    process_ = undefined;
    await endProcess(ending.child, signal);
  }

  await start({ tree: options.tree });
  const apiKey = () => options.env?.["SVC_API_KEY"] ?? readFileSync(join(home, "secrets/api-key"), "utf8").trim();
  const localURL = () => (JSON.parse(readFileSync(join(home, "node.json"), "utf8")) as { address: string }).address;
  const url = () => `${options.isSecure === true ? "https" : "http"}://${host}:${port}`;
  const where = () => ({ baseURL: options.isSecure === true ? localURL() : url(), apiKey: apiKey() });
  return {
    home,
    get url() {
      return url();
    },
    get localURL() {
      return options.isSecure === true ? localURL() : url();
    },
    get port() {
      return port;
    },
    get apiKey() {
      return apiKey();
    },
    get pid() {
      return process_?.child.pid ?? 0;
    },
    get hasEnded() {
      return process_ === undefined || process_.child.exitCode !== null || process_.child.signalCode !== null;
    },
    log: () => logged,
    call: (operation, input) => call(operation, input, where()),
    callForAnswer: (operation, input) => callForAnswer(operation, input, where()),
    kill,
    start,
    async restart(signal, next) {
      await kill(signal);
      await start(next);
    },
    async [Symbol.asyncDispose]() {
      // A node without sandboxes cleans up when it stops, which is faster than a separate cleanup process.
      if (process_ !== undefined) await deleteAll(where()).catch(() => undefined);
      try {
        await kill("SIGTERM");
      } finally {
        await destroyLeft(home, options.env, namespace);
        unconfine(home);
        if (options.home === undefined) removeHome(home);
      }
    },
  };
}

async function deleteAll(where: { readonly baseURL: string; readonly apiKey: string }): Promise<void> {
  const bounded = { ...where, timeoutMs: DELETE_MS };
  const all = await call(listSandboxes, { state: "running,paused" }, bounded);
  await Promise.all(all.map(({ sandboxID }) => call(deleteSandbox, { sandboxID }, bounded)));
}

/** Cleans up after a test, if anything of this home remains on the host. */
export async function destroyLeft(home: string, env?: Readonly<Record<string, string>>, namespace?: Namespace): Promise<void> {
  if (!isBare(home)) await destroyAll(home, env, namespace);
}

/** Ends every sandbox of a home with the node's own command, which needs neither the token seed nor envd; returns what it said. */
export async function destroyAll(home: string, env: Readonly<Record<string, string>> = {}, namespace?: Namespace): Promise<string> {
  const [program = "", ...args] = inside(namespace, [process.execPath, MAIN, "--destroy-all", "--leave-exported", `--home=${home}`]);
  const child = spawn(program, args, {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, ...env, SVC_ENVD: "/nonexistent", SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED: "" },
  });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (chunk: Buffer) => {
      said += chunk.toString();
    });
  }
  const code = await ended(child);
  if (code === 0) return said;
  throw new Error(`--destroy-all of ${home} ended with ${code}: ${said.slice(-3000)}`);
}
