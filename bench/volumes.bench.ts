// A volume against the sandbox's own disk: small and large reads and writes, and the metadata of many files, each driver in turn.
import { readFileSync } from "node:fs";
import { createVolume } from "@svc/contract/volumes.ts";
import { startNode, type TestNode } from "@svc/harness/node.ts";
import { Sandbox } from "e2b";
import { median, progress, type Row, report } from "./report.ts";

const ROUNDS = 5;
const FILES = 10_000;
const SECONDS = 1;
const BOUND_MS = 600_000;
const probe = readFileSync(new URL("./volume-probe.py", import.meta.url), "utf8");
const only = process.env["SVC_BENCH_RUNTIME"];

type Figures = Record<string, number>;
const kinds = { "4 KiB read": 0.7, "4 KiB write": 0.7, "1 MiB read": 0.8, "1 MiB write": 0.8 } as const;

async function measured(sandbox: Sandbox, folder: string): Promise<Figures> {
  const { stdout } = await sandbox.commands.run(`mkdir -p ${folder} && python3 /home/user/probe.py ${folder} ${FILES} ${SECONDS}`, { timeoutMs: BOUND_MS });
  return JSON.parse(stdout) as Figures;
}

async function ofDriver(runtime: "gvisor" | "runc" | "bubblewrap"): Promise<{ rows: Row[]; raw: Record<string, unknown> }> {
  await using node: TestNode = await startNode({ runtime, flags: ["--sandbox.disk_size_mb=4096", "--sandbox.memory_mb=1024"] });
  await node.call(createVolume, { name: "bench", sizeMB: 1024 });
  const connection = { apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey };
  const sandbox = await Sandbox.create("base", { ...connection, volumeMounts: { "/volume": "bench" }, timeoutMs: 3_000_000 });
  await sandbox.files.write("/home/user/probe.py", probe);
  const raw: { own: Figures[]; volume: Figures[] } = { own: [], volume: [] };
  for (let round = 0; round <= ROUNDS; round++) {
    progress(`${runtime}: round ${round} of ${ROUNDS}`);
    // The two are interleaved, and the first round only warms up.
    const own = await measured(sandbox, "/home/user/own");
    const volume = await measured(sandbox, "/volume/own");
    if (round === 0) continue;
    raw.own.push(own);
    raw.volume.push(volume);
  }
  await sandbox.kill();
  const ratio = (name: string) => median(raw.volume.map((each, at) => (each[name] ?? 0) / (raw.own[at]?.[name] ?? Number.NaN)));
  const rate = (name: string) => median(raw.volume.map((each) => each[name] ?? 0)).toFixed(0);
  const wholeOf = (each: Figures) => 1 / names.reduce((sum, name) => sum + 1 / (each[name] ?? Number.NaN), 0);
  const names = Object.keys(raw.own[0] ?? {}).filter((name) => name.startsWith("metadata"));
  const rows: Row[] = Object.entries(kinds).map(([name, atLeast]) => ({
    what: `${runtime}: ${name}, volume to own disk`,
    value: ratio(name),
    unit: "x",
    goal: { atLeast },
    note: `${rate(name)} operations/s on the volume`,
  }));
  rows.push({
    what: `${runtime}: metadata of ${FILES} files, volume to own disk`,
    value: median(raw.volume.map((each, at) => wholeOf(each) / wholeOf(raw.own[at] ?? {}))),
    unit: "x",
    goal: { atLeast: 0.5 },
    note: names.map((name) => `${name.replace("metadata: ", "")} ${ratio(name).toFixed(2)}`).join(", "),
  });
  return { rows, raw };
}

const rows: Row[] = [];
const raw: Record<string, unknown> = {};
for (const runtime of ["gvisor", "runc", "bubblewrap"] as const) {
  if (only !== undefined && only !== runtime) continue;
  const found = await ofDriver(runtime);
  rows.push(...found.rows);
  raw[runtime] = found.raw;
}
report("volumes", rows, raw, only !== undefined);
