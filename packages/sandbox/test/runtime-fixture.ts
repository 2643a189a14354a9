// The basis of the runtime suite: a home, the test's own network slot, an image, envd, and commands run through it.
import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { existsSync, mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync } from "node:fs";
import { request } from "node:http";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import { openLog } from "@svc/kit/log.ts";
import { openSpawner, type Spawner } from "@svc/kit/spawn.ts";
import type { NetworkSlot } from "@svc/sandbox/network/networks.ts";
import { dialUnix } from "@svc/sandbox/runtime/dial.ts";
import { type OpenRuntime, openRuntime } from "@svc/sandbox/runtime/open-runtime.ts";
import { eventually, startTicksOf } from "@svc/sandbox/runtime/process.ts";
import type { Checkpoint, CheckpointKind, Limits, RootImage, RuntimeHandle, RuntimeName, StartSpec } from "@svc/sandbox/runtime/runtime.ts";

const UNTIL_BOUND_MS = 120_000;
export const smallLimits: Limits = { cpuCount: 1, memoryMB: 256, diskSizeMB: 64, pids: 60 };
export const isRoot = process.getuid?.() === 0;

export type Fixture = AsyncDisposable & {
  readonly runtime: OpenRuntime;
  readonly home: string;
  readonly spawner: Spawner;
  spec(changes?: Partial<StartSpec>): StartSpec;
  /** Starts a sandbox and waits until it is healthy. */
  start(changes?: Partial<StartSpec>): Promise<RuntimeHandle>;
  /** Makes an empty directory in the home. */
  folder(): string;
  checkpoint(handle: RuntimeHandle, kind: CheckpointKind): Promise<Checkpoint>;
};

export function envdBinary(): string {
  return process.env["SVC_ENVD"] ?? "";
}

export function image(template = "base"): RootImage {
  const folder = realpathSync(join(process.env["SVC_TEMPLATES_DIR"] ?? "", template));
  const { binds = [] } = JSON.parse(readFileSync(join(folder, "template.json"), "utf8")) as { binds?: string[] };
  return { rootfs: join(folder, "rootfs"), binds };
}

let nextSlot = process.pid % 50;
let nextID = 0;

/** Returns "rt", the process id and a counter, so that the ids of one test share a long prefix. */
export function newRuntimeID(): string {
  nextID += 1;
  return `rt${String(process.pid).padStart(8, "0")}${String(nextID).padStart(10, "0")}`;
}

export async function openFixture(name: RuntimeName): Promise<Fixture> {
  const home = mkdtempSync(join(tmpdir(), "svc-rt-"));
  const spawner = openSpawner();
  const options = { home, spawner, log: openLog("runtime-test", "silent"), programs: { runsc: process.env["SVC_RUNSC"] } };
  const runtime = await openRuntime(name, options);
  const slots: NetworkSlot[] = [];
  const spec = (changes: Partial<StartSpec> = {}): StartSpec => {
    const runtimeID = changes.runtimeID ?? newRuntimeID();
    let network: NetworkSlot | undefined;
    if (isRoot && changes.network === undefined) slots.push((network = makeSlot(name)));
    return {
      runtimeID,
      directory: join(home, "sandboxes", runtimeID),
      image: image(),
      limits: smallLimits,
      hostname: "brave-box",
      bootID: randomUUID(),
      network,
      envd: { binary: envdBinary(), args: ["-listen", "0.0.0.0:49983"], env: {} },
      ...changes,
    };
  };
  return {
    runtime,
    home,
    spawner,
    spec,
    async start(changes) {
      const handle = await runtime.start(spec(changes));
      if (!(await eventually(() => healthy(handle), UNTIL_BOUND_MS))) throw new Error("envd does not answer /health");
      return handle;
    },
    folder: () => mkdtempSync(join(home, "folder-")),
    async checkpoint(handle, kind) {
      const into = { directory: mkdtempSync(join(home, "checkpoint-")), kind };
      await runtime.checkpoint(handle, into);
      return into;
    },
    async [Symbol.asyncDispose]() {
      await runtime.close({ everything: true });
      for (const slot of slots) removeSlot(slot);
      await spawner[Symbol.asyncDispose]();
      rmSync(home, { recursive: true, force: true });
    },
  };
}

/** Makes a namespace and a veth without a route to the outside; other tests cover the product's own networks. */
function makeSlot(runtime: RuntimeName): NetworkSlot {
  removeStaleSlots();
  for (;;) {
    nextSlot += 1;
    const name = `rt${process.pid}x${nextSlot}`;
    // The drivers' test files run concurrently.
    const block = `10.${232 + 4 * ["gvisor", "runc", "bubblewrap"].indexOf(runtime) + (process.pid % 4)}.${nextSlot % 250}`;
    const slot = {
      index: nextSlot,
      netns: name,
      netnsPath: `/run/netns/${name}`,
      veth: name,
      guestAddress: `${block}.2`,
      prefixLength: 30,
      gatewayAddress: `${block}.1`,
    };
    const script = `set -e; ip netns add $1; ip link add $1 type veth peer name eth0 netns $1; ip addr add $3/30 dev $1; ip link set $1 up
    ip -n $1 addr add $2/30 dev eth0; ip -n $1 link set eth0 up; ip -n $1 link set lo up; ip -n $1 route add default via $3`;
    execFileSync("sh", ["-c", script, "sh", name, slot.guestAddress, slot.gatewayAddress], { stdio: "ignore" });
    // If two interfaces have one address, only the first is reached, so another test process may have taken the address.
    const owners = Object.values(networkInterfaces()).filter((addresses) => addresses?.some(({ address }) => address === slot.gatewayAddress));
    if (owners.length === 1) return slot;
    removeSlot(slot);
  }
}

/** Removes slots of test processes that were killed. */
function removeStaleSlots(): void {
  for (const netns of existsSync("/run/netns") ? readdirSync("/run/netns") : []) {
    const pid = /^rt(\d+)x\d+$/.exec(netns)?.[1];
    if (pid !== undefined && !existsSync(`/proc/${pid}`)) removeSlot({ netns, veth: netns });
  }
}

function removeSlot({ netns, veth }: Pick<NetworkSlot, "netns" | "veth">): void {
  execFileSync("sh", ["-c", "ip link del $1; ip netns del $2; true", "sh", veth, netns], { stdio: "ignore" });
}

export type Answer = { readonly status: number; readonly body: Buffer };

export function call(
  handle: RuntimeHandle,
  method: string,
  path: string,
  headers: Record<string, string> = {},
  body?: Buffer,
  signal?: AbortSignal,
): Promise<Answer> {
  const { endpoint } = handle;
  const where =
    endpoint.kind === "tcp" ? { host: endpoint.host, port: 49983, agent: false as const } : { host: "envd", createConnection: () => dialUnix(endpoint.path) };
  return new Promise((resolve, reject) => {
    const sent = request(
      { ...where, ...(signal === undefined ? {} : { signal }), method, path, timeout: UNTIL_BOUND_MS, headers: { ...headers, connection: "close" } },
      (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.once("end", () => resolve({ status: response.statusCode ?? 0, body: Buffer.concat(chunks) }));
        response.once("error", reject);
      },
    );
    sent.once("timeout", () => sent.destroy(new Error("no answer")));
    sent.once("error", reject);
    sent.end(body);
  });
}

export function healthy(handle: RuntimeHandle): Promise<boolean> {
  return call(handle, "GET", "/health").then(
    ({ status }) => status === 204,
    () => false,
  );
}

export type Ran = { readonly exitCode: number; readonly stdout: string; readonly stderr: string };

/** Runs a shell command through envd's own protocol. */
export async function run(handle: RuntimeHandle, command: string, user = "root", signal?: AbortSignal): Promise<Ran> {
  const message = Buffer.from(JSON.stringify({ process: { cmd: "/bin/sh", args: ["-c", command] }, stdin: false }));
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  const headers = { "content-type": "application/connect+json", "connect-protocol-version": "1", authorization: `Basic ${btoa(`${user}:`)}` };
  const { body } = await call(handle, "POST", "/process.Process/Start", headers, Buffer.concat([head, message]), signal);
  let stdout = "";
  let stderr = "";
  let exitCode: number | undefined;
  for (let at = 0; at < body.length; at += 5 + body.readUInt32BE(at + 1)) {
    const text = body.subarray(at + 5, at + 5 + body.readUInt32BE(at + 1)).toString("utf8");
    const { event, error } = JSON.parse(text) as { event?: { data?: { stdout?: string; stderr?: string }; end?: { exitCode?: number } }; error?: unknown };
    if (error !== undefined) throw new Error(`envd: ${text}`);
    stdout += Buffer.from(event?.data?.stdout ?? "", "base64").toString("utf8");
    stderr += Buffer.from(event?.data?.stderr ?? "", "base64").toString("utf8");
    if (event?.end !== undefined) exitCode = event.end.exitCode ?? 0;
  }
  if (exitCode === undefined) throw new Error(`the command did not end: ${body.toString("utf8").slice(0, 500)}`);
  return { exitCode, stdout, stderr };
}

/** Returns everything in the kernel and on the disk that belongs to a sandbox; empty if it was destroyed completely. */
export function remains(home: string, runtimeID: string): string[] {
  const found: string[] = [];
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    if (startTicksOf(Number(pid)) === undefined) continue; // ended, not yet reaped
    const text = ["cmdline", "cgroup", "environ"].map((file) => read(`/proc/${pid}/${file}`)).join("\0");
    if (text.includes(runtimeID) && pid !== String(process.pid)) found.push(`process ${pid}: ${text.slice(0, 200)}`);
  }
  for (const line of read("/proc/self/mountinfo").split("\n")) if (line.includes(runtimeID)) found.push(`mount ${line}`);
  for (const path of [...tree("/sys/fs/cgroup", 3), ...tree(home, 5)]) if (path.includes(runtimeID)) found.push(path);
  for (const name of readdirSync("/sys/block")) if (read(`/sys/block/${name}/loop/backing_file`).includes(runtimeID)) found.push(`loop device ${name}`);
  return found;
}

function read(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return "";
  }
}

function tree(folder: string, depth: number): string[] {
  try {
    return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
      const path = join(folder, entry.name);
      return entry.isDirectory() && depth > 1 ? [path, ...tree(path, depth - 1)] : [path];
    });
  } catch {
    return [];
  }
}
