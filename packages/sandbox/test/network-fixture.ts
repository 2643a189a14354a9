// Networks of a test's own home, and programs run inside a slot's network namespace.
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { confine, NO_RESOLVER, unconfine } from "@svc/harness/confine.ts";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { openLog } from "@svc/kit/log.ts";
import { openSpawner, type Spawner } from "@svc/kit/spawn.ts";
import { type EgressPolicy, openEgress } from "../src/egress/policy.ts";
import type { NetworkSlot, Networks } from "../src/network/networks.ts";
import { type NetworksOptions, openNetworks } from "../src/network/open-networks.ts";
import type { Probe } from "./network-probe.ts";

export const probeFile = fileURLToPath(new URL("./network-probe.ts", import.meta.url));
export const open = openEgress;
export const closed: EgressPolicy = { ...openEgress, allowInternet: false };

export type Fixture = { readonly home: string; readonly networks: Networks; readonly spawner: Spawner } & AsyncDisposable;

export async function openFixture(options: Partial<NetworksOptions> = {}): Promise<Fixture> {
  const home = options.home ?? makeHome();
  const spawner = openSpawner();
  const networks = await openNetworks({
    spawner,
    log: openLog("network-test", "fatal"),
    poolSize: 2,
    dns: { upstreams: [NO_RESOLVER] },
    ...options,
    home,
  });
  confine(home);
  return {
    home,
    networks,
    spawner,
    async [Symbol.asyncDispose]() {
      await networks.close({ everything: true });
      unconfine(home);
      await spawner[Symbol.asyncDispose]();
      removeHome(home);
    },
  };
}

export async function inNetns(netns: string, argv: readonly string[]): Promise<string> {
  const { stdout } = await promisify(execFile)("ip", ["netns", "exec", netns, ...argv]);
  return stdout;
}

/** Returns the outcome of each probe, in order. */
export async function probe(slot: NetworkSlot, probes: readonly Probe[]): Promise<string[]> {
  const output = await inNetns(slot.netns, [process.execPath, "--disable-warning=ExperimentalWarning", probeFile, JSON.stringify(probes)]);
  return JSON.parse(output.trim().split("\n").at(-1) ?? "") as string[];
}

export type Running = { readonly child: ChildProcess; said(): string; readonly ended: Promise<string> } & AsyncDisposable;

/** Starts a probe that continues to run; returns after its first output, or after its start if it is silent. */
export async function running(slot: NetworkSlot, probes: readonly Probe[], how: { silent?: boolean } = {}): Promise<Running> {
  const argv = ["netns", "exec", slot.netns, process.execPath, "--disable-warning=ExperimentalWarning", probeFile, JSON.stringify(probes)];
  const child = spawn("ip", argv, { stdio: ["pipe", "pipe", "inherit"] });
  child.stdin.on("error", () => {}); // it may have ended
  let output = "";
  child.stdout.on("data", (chunk: Buffer) => (output += chunk.toString()));
  const ended = once(child, "close").then(() => output.trim().split("\n").at(-1) ?? "");
  if (how.silent !== true) await once(child.stdout, "data");
  return { child, said: () => output, ended, [Symbol.asyncDispose]: () => killed(child) };
}

/** Starts a TCP server on every address of the slot. */
export async function serveIn(slot: NetworkSlot, port: number): Promise<AsyncDisposable> {
  const program = `require("node:net").createServer((s) => s.end("hello")).listen(${port}, "0.0.0.0", () => console.log("ready"))`;
  const server = spawn("ip", ["netns", "exec", slot.netns, process.execPath, "-e", program], { stdio: ["ignore", "pipe", "inherit"] });
  await once(server.stdout, "data");
  return { [Symbol.asyncDispose]: () => killed(server) };
}

export async function killed(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}
