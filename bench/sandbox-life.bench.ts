// The life of sandboxes: pause, resume, snapshot and fork of 100 MB of live heap, 200 idle ones, a neighbour under abuse.
// SVC_BENCH_PARTS="pause snapshot forks written neighbours idle" runs some of it, which writes no results.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { startNode, type TestNode } from "@svc/harness/node.ts";
import { Sandbox } from "e2b";
import { availableBytes, crowd } from "./density.ts";
import { median, percentile, type Row, report } from "./report.ts";
import { written } from "./sandbox-written.ts";

const HEAP_BYTES = 100 * 1024 * 1024;
const ROUNDS = 11;
const FIRST_ROUNDS = 5;
const FORKS = 10;
const FORK_ROUNDS = 5;
/** As the settings have it. */
const PRECREATED = 2;
const PRECREATED_READY_MS = 60_000;
const COMMANDS = 150;
const ABUSER = fileURLToPath(new URL("abuser.ts", import.meta.url));
const rows: Row[] = [];
const raw: Record<string, unknown> = {};

const connectionOf = (node: TestNode) => ({ apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey });

/** Holds the heap and sleeps. */
const HOLDER = `import os, time
heap = os.urandom(${HEAP_BYTES})
open("/tmp/ready", "w").close()
while True:
    time.sleep(1)`;

/** Holds the heap, and looks at the clock every millisecond, so that a stop shows as a gap. */
const WATCHER = `import os, time
heap = os.urandom(${HEAP_BYTES})
open("/tmp/ready", "w").close()
last = worst = time.monotonic()
worst = 0.0
while True:
    now = time.monotonic()
    if now - last > worst:
        worst = now - last
    last = now
    if os.path.exists("/tmp/ask"):
        os.unlink("/tmp/ask")
        open("/tmp/gap.new", "w").write(str(worst))
        os.rename("/tmp/gap.new", "/tmp/gap")
        worst = 0.0
        last = time.monotonic()
    time.sleep(0.001)`;

async function holding(node: TestNode, program = HOLDER): Promise<Sandbox> {
  const sandbox = await Sandbox.create("base", { ...connectionOf(node), timeoutMs: 3_000_000 });
  await sandbox.files.write("/home/user/holder.py", program);
  await sandbox.commands.run("python3 holder.py > /dev/null 2>&1 & disown; until [ -e /tmp/ready ]; do sleep 0.1; done");
  return sandbox;
}

async function timed<T>(work: () => Promise<T>): Promise<{ ms: number; value: T }> {
  const begin = performance.now();
  const value = await work();
  return { ms: performance.now() - begin, value };
}

async function pauseAndResume(): Promise<void> {
  // Network slots and precreated sandboxes are kept ready as the settings have it without a word.
  await using node = await startNode({ runtime: "gvisor", flags: ["--network.pool_size=4", `--pool.precreated=${PRECREATED}`] });
  const firsts: number[] = [];
  for (let round = 0; round < FIRST_ROUNDS; round++) {
    const fresh = await holding(node);
    firsts.push((await timed(() => fresh.pause())).ms);
    await fresh.kill();
  }
  const sandbox = await holding(node);
  await sandbox.pause();
  await Sandbox.connect(sandbox.sandboxId, connectionOf(node));
  const pauses: number[] = [];
  const resumes: number[] = [];
  const creates: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    pauses.push((await timed(() => sandbox.pause())).ms);
    await sleep(300);
    const { ms } = await timed(async () => {
      await Sandbox.connect(sandbox.sandboxId, connectionOf(node));
      if (!(await sandbox.isRunning())) throw new Error("it does not answer after a resume");
    });
    resumes.push(ms);
    await precreatedReady(node, PRECREATED);
    const created = await timed(async () => {
      const another = await Sandbox.create("base", { ...connectionOf(node), timeoutMs: 60_000 });
      if (!(await another.isRunning())) throw new Error("it does not answer after a create");
      return another;
    });
    creates.push(created.ms);
    await created.value.kill();
    await precreatedReady(node, PRECREATED);
  }
  Object.assign(raw, { firstPauseMs: firsts, pauseMs: pauses, resumeMs: resumes, createMs: creates });
  rows.push({ what: "create to answering, no started sandbox in the pool: p50", value: median(creates), unit: "ms", goal: { atMost: 170 }, samples: ROUNDS });
  const pauseRow = (which: string, times: readonly number[]): Row => ({
    what: `pause, 100 MB of live heap, ${which}: p50`,
    value: median(times),
    unit: "ms",
    goal: { atMost: 110 },
    samples: times.length,
  });
  rows.push(pauseRow("the first of a sandbox", firsts), pauseRow("after a resume", pauses));
  rows.push({ what: "resume to answering, 100 MB of live heap: p50", value: median(resumes), unit: "ms", goal: { atMost: 140 }, samples: ROUNDS });
}

async function snapshotStop(): Promise<void> {
  await using node = await startNode({ runtime: "gvisor" });
  const sandbox = await holding(node, WATCHER);
  const gapMs = async () => {
    await sandbox.commands.run("rm -f /tmp/gap; touch /tmp/ask; until [ -e /tmp/gap ]; do sleep 0.02; done");
    return Number(await sandbox.files.read("/tmp/gap")) * 1000;
  };
  const gaps: number[] = [];
  const quiet: number[] = [];
  const whole: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    await gapMs();
    await sleep(300);
    quiet.push(await gapMs());
    const { ms, value } = await timed(() => sandbox.createSnapshot());
    whole.push(ms);
    gaps.push(await gapMs());
    await Sandbox.deleteSnapshot(value.snapshotId, connectionOf(node));
    await sleep(200);
  }
  Object.assign(raw, { snapshotStopMs: gaps, quietGapMs: quiet, snapshotMs: whole });
  rows.push({
    what: "a snapshot stops its source, 100 MB of live heap: p50",
    value: median(gaps),
    unit: "ms",
    goal: { atMost: 70 },
    samples: ROUNDS,
    note: `as a program inside sees it; the longest gap without one ${median(quiet).toFixed(0)} ms; the call takes ${median(whole).toFixed(0)} ms`,
  });
}

async function precreatedReady(node: TestNode, count: number): Promise<void> {
  const end = performance.now() + PRECREATED_READY_MS;
  for (;;) {
    const text = await (await fetch(`${node.url}/metrics`)).text();
    if (Number(/^svc_node_precreated (\d+)/m.exec(text)?.[1] ?? 0) >= count) return;
    if (performance.now() > end) throw new Error(`there are fewer than ${count} precreated sandboxes after ${PRECREATED_READY_MS} ms`);
    await sleep(50);
  }
}

/** Of making one precreated sandbox, as the node timed it. */
async function precreatedMs(node: TestNode): Promise<number> {
  const text = await (await fetch(`${node.url}/metrics`)).text();
  const of = (what: string) => Number(new RegExp(`^svc_node_stage_seconds_${what}\\{.*stage="precreate".*\\} (\\S+)$`, "m").exec(text)?.[1] ?? 0);
  return (1000 * of("sum")) / Math.max(1, of("count"));
}

async function forks(precreated: number, goalMs: number): Promise<void> {
  await using node = await startNode({ runtime: "gvisor", flags: ["--network.pool_size=16", `--pool.precreated=${precreated}`] });
  const sandbox = await holding(node);
  const times: number[] = [];
  let memoryMB = 0;
  let diskMB = 0;
  for (let round = 0; round < FORK_ROUNDS + 1; round++) {
    // The first fork says which precreated sandboxes will be wanted.
    if (round > 0) await precreatedReady(node, precreated);
    await sleep(2_000);
    const before = availableBytes();
    const diskBefore = diskBytes(join(node.home, "sandboxes"));
    const { ms, value } = await timed(async () => {
      const children = (await sandbox.fork({ count: FORKS })).map(whole);
      const answers = await Promise.all(children.map((child) => child.isRunning()));
      if (answers.includes(false)) throw new Error("a fork does not answer");
      return children;
    });
    if (round > 0) times.push(ms);
    await sleep(1_000);
    memoryMB = (before - availableBytes()) / FORKS / 1e6;
    diskMB = (diskBytes(join(node.home, "sandboxes")) - diskBefore) / FORKS / 1e6;
    for (const child of value) await child.kill();
  }
  const standing = precreated === 0 ? "no precreated sandboxes" : `${precreated} precreated sandboxes standing`;
  Object.assign(raw, { [`fork, ${standing}`]: { ms: times, memoryMB, diskMB } });
  const refill = precreated === 0 ? "" : `; a precreated sandbox takes ${(await precreatedMs(node)).toFixed(0)} ms to make`;
  rows.push({
    what: `fork into ${FORKS}, all answering, 100 MB of live heap, ${standing}: p50`,
    value: median(times),
    unit: "ms",
    goal: { atMost: goalMs },
    samples: FORK_ROUNDS,
    note: `${(median(times) / FORKS).toFixed(0)} ms, ${memoryMB.toFixed(0)} MB of memory and ${diskMB.toFixed(1)} MB of disk a child${refill}`,
  });
}

function whole(child: Sandbox | Error): Sandbox {
  if (child instanceof Sandbox) return child;
  throw new Error(`a fork failed: ${child.message}`);
}

async function commandTimes(sandbox: Sandbox, count: number): Promise<number[]> {
  const times: number[] = [];
  for (let index = 0; index < count; index++) {
    const { ms, value } = await timed(() => sandbox.commands.run("true"));
    if (value.exitCode !== 0) throw new Error("a command failed");
    times.push(ms);
  }
  return times;
}

/** What a sandbox does to its neighbour: each abuse for as long as the neighbour's commands take. */
const abuses: Readonly<Record<string, string>> = {
  "fork bomb": "bash -c ':(){ :|:& };:' > /dev/null 2>&1",
  "memory bomb": "python3 -c 'b=[]\nwhile True: b.append(bytearray(10**7))'",
  "disk fill": "dd if=/dev/zero of=fill bs=1M status=none; while true; do dd if=/dev/zero of=fill bs=1M count=64 conv=notrunc status=none; done",
  "log flood": "yes flood",
  "busy loops": "for i in 1 2 3 4 5 6 7 8; do while :; do :; done & done; wait",
};

async function neighbours(): Promise<void> {
  for (const [what, command] of Object.entries(abuses)) {
    await using node = await startNode({ runtime: "gvisor" });
    const neighbour = await Sandbox.create("base", { ...connectionOf(node), timeoutMs: 3_000_000 });
    await commandTimes(neighbour, 10);
    const quiet = await commandTimes(neighbour, COMMANDS);
    const abuser = await Sandbox.create("base", { ...connectionOf(node), timeoutMs: 3_000_000 });
    const client = spawn(process.execPath, [ABUSER, node.url, node.apiKey, abuser.sandboxId, command], {
      stdio: ["ignore", "pipe", "inherit"],
      detached: true, // a session of its own: the kernel shares processors out by session
    });
    const ended = once(client, "exit");
    await once(client.stdout, "data");
    await sleep(1_000);
    const under = await commandTimes(neighbour, COMMANDS);
    await abuser.kill();
    client.kill();
    await ended;
    raw[`neighbour of ${what}`] = { quietMs: quiet, underMs: under };
    rows.push({
      what: `p99 of a neighbour's commands, ${what}, to quiet`,
      value: percentile(under, 0.99) / percentile(quiet, 0.99),
      unit: "x",
      goal: { atMost: 2.5 },
      samples: COMMANDS,
      note: `p99 ${percentile(quiet, 0.99).toFixed(0)} to ${percentile(under, 0.99).toFixed(0)} ms, none failed`,
    });
  }
}

/** A file with several names counts once. */
function diskBytes(folder: string): number {
  const bytes = new Map<number, number>();
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const { ino, blocks } = statSync(join(entry.parentPath, entry.name));
    bytes.set(ino, blocks * 512);
  }
  return [...bytes.values()].reduce((total, each) => total + each, 0);
}

const parts: Readonly<Record<string, () => Promise<void>>> = {
  pause: pauseAndResume,
  snapshot: snapshotStop,
  forks: async () => {
    await forks(0, 1450);
    await forks(FORKS, 1100);
  },
  written: async () => add(await written()),
  neighbours,
  idle: async () => add(await crowd(200, 30)),
};

function add(more: { readonly rows: readonly Row[]; readonly raw: Readonly<Record<string, unknown>> }): void {
  rows.push(...more.rows);
  Object.assign(raw, more.raw);
}

const asked = process.env["SVC_BENCH_PARTS"]?.split(" ") ?? Object.keys(parts);
for (const name of asked) {
  const part = parts[name];
  if (part === undefined) throw new Error(`SVC_BENCH_PARTS: expected some of ${Object.keys(parts).join(" ")}, got "${name}"`);
  await part();
}
report("sandbox-life", rows, raw, asked.length < Object.keys(parts).length);
