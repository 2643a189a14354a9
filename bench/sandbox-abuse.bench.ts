// One abuser and twenty victims: the latency of the victims' commands while one sandbox, or one client, takes all it can get.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { abuses } from "@svc/harness/abuse.ts";
import { startNode } from "@svc/harness/node.ts";
import { Sandbox } from "e2b";
import { floods } from "./floods.ts";
import { percentile, type Row, report } from "./report.ts";

const VICTIMS = 20;
const ROUNDS = 10;
const SETTLE_MS = 1_500;
const ABUSER = fileURLToPath(new URL("abuser.ts", import.meta.url));
const FLOODER = fileURLToPath(new URL("flooder.ts", import.meta.url));

/** Commands that the sandbox's own user runs inside. */
const inside: Readonly<Record<string, string>> = {
  "forks without end": abuses.forks.command,
  "memory without end": abuses.memory.command,
  "a full disk": abuses.disk.command,
  "output without end": "yes flood",
  "DNS over UDP": floods["DNS over UDP"] ?? "",
  "DNS over TCP": floods["DNS over TCP, pipelined on 8 connections"] ?? "",
  "terminals without end": abuses.terminals.command,
  "inotify without end": abuses.watches.command,
  "connections without end": floods["connections to the node's port"] ?? "",
};
/** Floods from outside, without a key: the flooder's kind, and the number of connections. */
const outside: Readonly<Record<string, readonly [kind: string, count: number]>> = {
  "slow heads on 2,000 connections": ["slow", 2000],
  "connections that come and go": ["connects", 100],
};

await using node = await startNode({ runtime: "gvisor", flags: ["--network.pool_size=4"] });
const connection = { apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey };
const create = () => Sandbox.create("base", { ...connection, timeoutMs: 3_000_000, allowInternetAccess: false });
const victims: Sandbox[] = [];
for (let index = 0; index < VICTIMS; index++) victims.push(await create());

/** The victims' commands run one at a time, so that only the abuser's load is measured. */
async function commands(rounds: number): Promise<number[]> {
  const times: number[] = [];
  for (let round = 0; round < rounds; round++) {
    for (const victim of victims) {
      const begin = performance.now();
      const { exitCode } = await victim.commands.run("true");
      if (exitCode !== 0) throw new Error("a victim's command failed");
      times.push(performance.now() - begin);
    }
  }
  return times;
}

const rows: Row[] = [];
const raw: Record<string, number[]> = {};
let quiet: readonly number[] = [];

async function measure(what: string): Promise<void> {
  await sleep(SETTLE_MS);
  const times = await commands(ROUNDS);
  raw[what] = times;
  const ratio = percentile(times, 0.99) / percentile(quiet, 0.99);
  process.stdout.write(`${what}: ${ratio.toFixed(2)}\n`);
  const note = `p50 ${percentile(quiet, 0.5).toFixed(0)} to ${percentile(times, 0.5).toFixed(0)} ms, p99 ${percentile(quiet, 0.99).toFixed(0)} to ${percentile(times, 0.99).toFixed(0)} ms, none failed`;
  rows.push({
    what: `p99 of ${VICTIMS} victims' commands, ${what}, to quiet`,
    value: ratio,
    unit: "x",
    goal: { atMost: /DNS|slow heads/.test(what) ? 1.5 : 2.5 },
    samples: times.length,
    note,
  });
}

async function during(argv: readonly string[], work: () => Promise<void>): Promise<void> {
  // The client gets its own session, because the kernel divides processors by session.
  const client = spawn(process.execPath, argv, { stdio: ["ignore", "pipe", "inherit"], detached: true });
  const ended = once(client, "exit");
  await once(client.stdout, "data");
  await work();
  client.kill("SIGKILL");
  await ended;
}

await commands(2);
// The baseline is measured before each kind, because other load on the machine varies.
const takeQuiet = async () => {
  quiet = await commands(ROUNDS);
};
for (const [what, command] of Object.entries(inside)) {
  await takeQuiet();
  const abuser = await create();
  await during([ABUSER, node.url, node.apiKey, abuser.sandboxId, command.replace("PORT", String(node.port))], () => measure(what));
  await abuser.kill();
}
for (const [what, [kind, count]] of Object.entries(outside)) {
  await takeQuiet();
  await during([FLOODER, kind, String(node.port), String(count)], () => measure(what));
}
report("sandbox-abuse", rows, raw);
