// A simulated internet for a test: a network namespace with public and private addresses and servers on them.
import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, fork } from "node:child_process";
import { once } from "node:events";
import { readlinkSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { HttpsHost } from "./outside-https.ts";
import type { OutsideOrder, OutsideReply, Seen } from "./outside-server.ts";

export type { Seen } from "./outside-server.ts";

/** The host's address on the link to the outside, which is the source address after NAT. */
export const hostAddress = "198.51.100.1";
/** Another address of the host, like that of a neighbour on a public network. */
export const neighbourAddress = "198.51.100.2";
export const publicAddresses = ["1.1.1.1", "8.8.8.8"] as const;
/** One address in each blocked range that the host can route, so that only the firewall can be the reason for a denial. */
export const privateAddresses = [
  "10.9.9.9",
  "100.100.100.200",
  "168.63.129.16",
  "169.254.169.254",
  "172.31.255.1",
  "192.0.0.192",
  "192.88.99.1",
  "192.168.255.1",
  "198.18.0.1",
  "240.0.0.1",
] as const;

/** Tests that need these addresses run one at a time. */
const TURN_WAIT_MS = 240_000;
const TURN_RETRY_MS = 100;
const REPLY_WAIT_MS = 30_000;

export interface Outside extends AsyncDisposable {
  /** A value for `dns.upstreams`: the outside's own DNS server. */
  readonly dnsServer: string;
  /** Returns what its servers received since the last call. */
  seen(): Promise<Seen[]>;
  /** Connects from the outside through this host; returns "connected", an error code or "timeout". */
  dial(host: string, port: number): Promise<string>;
}

/**
 * Serves HTTP on port 80, echo on TCP 7, 443 and UDP 7, and DNS on 53 of all addresses; with `https` it serves these hosts on 443 instead. Needs root. It
 * ends with this process in any case.
 */
export async function startOutside({ https = [] }: { readonly https?: readonly HttpsHost[] } = {}): Promise<Outside> {
  const link = `outside${process.pid % 10_000_000}`;
  // The namespace is anonymous: it lives as long as its only process, which ends when our channel to it closes.
  const server = fork(fileURLToPath(new URL("./outside-server.ts", import.meta.url)), {
    execPath: "unshare",
    execArgv: ["--net", process.execPath, "--disable-warning=ExperimentalWarning"],
  });
  try {
    await inNamespaceOfItsOwn(server);
    await takeTurn(link, server.pid ?? 0);
    ip(
      "-batch",
      [...publicAddresses.slice(1), ...privateAddresses].map((address) => `route replace ${address}/32 dev ${link} src ${hostAddress}`),
    );
    const inside = [neighbourAddress, ...publicAddresses, ...privateAddresses].map((address) => `addr add ${address}/32 dev out0`);
    const up = ["link set lo up", "link set out0 up", ...inside, `route add ${hostAddress} dev out0`, `route add default via ${hostAddress}`];
    execFileSync("nsenter", ["-t", String(server.pid), "-n", "ip", "-batch", "-"], { input: `${up.join("\n")}\n` });
    const ready = await asked(server, { order: "serve", https });
    assert.equal(ready.reply, "ready", JSON.stringify(ready));
  } catch (error) {
    await end(server, link);
    throw error;
  }
  return {
    dnsServer: publicAddresses[1],
    async seen() {
      const answer = await asked(server, { order: "seen" });
      assert.equal(answer.reply, "seen");
      return answer.reply === "seen" ? answer.seen : [];
    },
    async dial(host, port) {
      const answer = await asked(server, { order: "dial", host, port });
      assert.equal(answer.reply, "dialled");
      return answer.reply === "dialled" ? answer.outcome : "";
    },
    [Symbol.asyncDispose]: () => end(server, link),
  };
}

/** The route to the first public address serves as a lock, because the kernel allows only one such route. */
async function takeTurn(link: string, pid: number): Promise<void> {
  const lines = [`link add ${link} type veth peer name out0 netns ${pid}`, `addr add ${hostAddress}/32 dev ${link}`, `link set ${link} up`];
  ip("-batch", lines);
  for (let waitedMs = 0; waitedMs < TURN_WAIT_MS; waitedMs += TURN_RETRY_MS) {
    try {
      execFileSync("ip", ["route", "add", `${publicAddresses[0]}/32`, "dev", link, "src", hostAddress], { stdio: "pipe" });
      ip("-batch", [`route replace ${neighbourAddress}/32 dev ${link} src ${hostAddress}`]);
      return;
    } catch (error) {
      if (!String(error).includes("File exists")) throw error;
      await sleep(TURN_RETRY_MS);
    }
  }
  throw new Error(`another test has held the route to ${publicAddresses[0]} for ${TURN_WAIT_MS} ms`);
}

/** unshare(1) enters the new namespace shortly after it was started. */
async function inNamespaceOfItsOwn(server: ChildProcess): Promise<void> {
  const ours = readlinkSync("/proc/self/ns/net");
  for (let waitedMs = 0; waitedMs < REPLY_WAIT_MS; waitedMs += 5) {
    if (server.exitCode !== null) throw new Error(`unshare --net ended with ${server.exitCode}: a network namespace needs root`);
    if (readlinkSync(`/proc/${server.pid}/ns/net`) !== ours) return;
    await sleep(5);
  }
  throw new Error("unshare --net made no namespace");
}

async function asked(server: ChildProcess, order: OutsideOrder): Promise<OutsideReply> {
  const answer = once(server, "message", { signal: AbortSignal.timeout(REPLY_WAIT_MS) });
  server.send(order);
  const [reply] = (await answer) as [OutsideReply];
  return reply;
}

async function end(server: ChildProcess, link: string): Promise<void> {
  if (server.exitCode === null && server.signalCode === null) {
    const ended = once(server, "exit");
    server.kill("SIGKILL");
    await ended;
  }
  // The interface ends with the namespace, but with a delay, and the next test must find the routes gone.
  try {
    execFileSync("ip", ["link", "del", link], { stdio: "pipe" });
  } catch {
    // The link is already gone.
  }
}

function ip(option: string, lines: readonly string[]): void {
  execFileSync("ip", [option, "-"], { input: `${lines.join("\n")}\n`, stdio: ["pipe", "pipe", "pipe"] });
}
