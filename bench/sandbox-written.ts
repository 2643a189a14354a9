// Pause, resume, snapshot and fork of sandboxes that wrote much to their disk, or hold much in memory: the cost should follow what changed.
import { setTimeout as sleep } from "node:timers/promises";
import { startNode, type TestNode } from "@svc/harness/node.ts";
import { Sandbox } from "e2b";
import { median, type Row } from "./report.ts";

const FORKS = 3;
const SETTLE_MS = 500;

type Load = { readonly what: string; readonly writtenMB: number; readonly heapMB: number; readonly rounds: number };

const loads: readonly Load[] = [
  { what: "64 MB of written files", writtenMB: 64, heapMB: 0, rounds: 7 },
  { what: "512 MB of written files", writtenMB: 512, heapMB: 0, rounds: 7 },
  { what: "2 GB of written files", writtenMB: 2048, heapMB: 0, rounds: 7 },
  { what: "1 GB of heap", writtenMB: 0, heapMB: 1024, rounds: 5 },
];
const goals: Readonly<Record<string, { readonly pause: number; readonly resume: number }>> = { "2 GB of written files": { pause: 400, resume: 350 } };

const connectionOf = (node: TestNode) => ({ apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey });

const writer = `import os, sys
with open("/home/user/written", "wb") as f:
    for _ in range(int(sys.argv[1])): f.write(os.urandom(1 << 20))`;

const holder = `import os, sys, time
heap = [os.urandom(1 << 20) for _ in range(int(sys.argv[1]))]
open("/tmp/ready", "w").close()
time.sleep(1e9)`;

async function timed<T>(work: () => Promise<T>): Promise<{ ms: number; value: T }> {
  const begin = performance.now();
  const value = await work();
  return { ms: performance.now() - begin, value };
}

const answering = async (sandbox: Sandbox) => {
  if (!(await sandbox.isRunning())) throw new Error("it does not answer");
};

async function measure({ what, writtenMB, heapMB, rounds }: Load): Promise<{ rows: Row[]; raw: Record<string, unknown> }> {
  const flags = ["--network.pool_size=4", "--sandbox.disk_size_mb=8192", `--sandbox.memory_mb=${heapMB === 0 ? 512 : 2048}`];
  await using node = await startNode({ runtime: "gvisor", flags });
  const sandbox = await Sandbox.create("base", { ...connectionOf(node), timeoutMs: 3_000_000 });
  await sandbox.files.write("/home/user/writer.py", writer);
  await sandbox.files.write("/home/user/holder.py", holder);
  await sandbox.commands.run(`python3 writer.py ${writtenMB}; sync`, { timeoutMs: 600_000 });
  if (heapMB > 0) await sandbox.commands.run(`python3 holder.py ${heapMB} >/dev/null 2>&1 & disown; until [ -e /tmp/ready ]; do sleep 0.1; done`);
  const times: Record<"pause" | "resume" | "snapshot" | "fork", number[]> = { pause: [], resume: [], snapshot: [], fork: [] };
  for (let round = 0; round < rounds; round++) {
    await sandbox.commands.run("dd if=/dev/urandom of=written bs=1M count=1 conv=notrunc 2>/dev/null");
    times.pause.push((await timed(() => sandbox.pause())).ms);
    await sleep(SETTLE_MS);
    const resume = await timed(async () => {
      await Sandbox.connect(sandbox.sandboxId, connectionOf(node));
      await answering(sandbox);
    });
    times.resume.push(resume.ms);
    await sleep(SETTLE_MS);
    const snapshot = await timed(() => sandbox.createSnapshot());
    times.snapshot.push(snapshot.ms);
    await Sandbox.deleteSnapshot(snapshot.value.snapshotId, connectionOf(node));
    await sleep(SETTLE_MS);
    const fork = await timed(async () => {
      const children = (await sandbox.fork({ count: FORKS })).map((child) => {
        if (child instanceof Sandbox) return child;
        throw new Error(`a fork failed: ${child.message}`);
      });
      await Promise.all(children.map(answering));
      return children;
    });
    times.fork.push(fork.ms);
    for (const child of fork.value) await child.kill();
    await sleep(SETTLE_MS);
  }
  const goal = goals[what];
  const row = (name: string, samples: readonly number[], atMost: number | undefined): Row => ({
    what: `${name}, ${what}: p50`,
    value: median(samples),
    unit: "ms",
    samples: samples.length,
    note: `${Math.min(...samples).toFixed(0)} to ${Math.max(...samples).toFixed(0)}`,
    ...(atMost === undefined ? {} : { goal: { atMost } }),
  });
  return {
    rows: [
      row("pause", times.pause, goal?.pause),
      row("resume to answering", times.resume, goal?.resume),
      row("snapshot, the call", times.snapshot, undefined),
      row(`fork into ${FORKS}, all answering`, times.fork, undefined),
    ],
    raw: { [what]: times },
  };
}

/** `only` selects loads by a part of their names. */
export async function written(only = ""): Promise<{ rows: Row[]; raw: Record<string, unknown> }> {
  const all: { rows: Row[]; raw: Record<string, unknown> } = { rows: [], raw: {} };
  for (const load of loads.filter(({ what }) => what.includes(only))) {
    const { rows, raw } = await measure(load);
    all.rows.push(...rows);
    Object.assign(all.raw, raw);
  }
  return all;
}
