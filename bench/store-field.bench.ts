// Mooncake's unmodified client on our master and on its own, interleaved: one thread and sixteen, and the masters' processor time.
import { type Holder, MIB, startHolder } from "../packages/store/test/holder.ts";
import { startMaster, startMooncakeMaster } from "../packages/store/test/master.ts";
import { cpuSeconds } from "./process-usage.ts";
import { median, type Row, report } from "./report.ts";

const ROUNDS = Number(process.env["SVC_BENCH_ROUNDS"] ?? 9);
const SEGMENT_BYTES = 1024 * MIB;
const LENGTH = 1024;
/** The number of calls of all threads together; a batch has a hundred keys. Objects are put before they are read. */
const counts = { put: 4_000, get: 4_000, exist: 4_000, batch: 1_600 } as const;
type What = keyof typeof counts;
type Timed = { readonly perSecond: number; readonly wrong: number };
type Side = { readonly name: "ours" | "theirs"; readonly pid: number; readonly holder: Holder };
type Sample = { readonly perSecond: number; readonly cpuMicros: number };

async function measure({ name, pid, holder }: Side, what: What, threads: number, prefix: string): Promise<Sample> {
  const before = cpuSeconds(pid);
  const { perSecond, wrong } = await holder.ask<Timed>({ op: "timed", what, threads, length: LENGTH, count: counts[what], prefix });
  if (wrong > 0) throw new Error(`${name}, ${what}: ${wrong} of ${counts[what]} calls did not do what they should`);
  return { perSecond, cpuMicros: ((cpuSeconds(pid) - before) * 1e6) / counts[what] };
}

const samples = new Map<string, { ours: Sample[]; theirs: Sample[] }>();
{
  await using own = await startMaster();
  await using field = await startMooncakeMaster();
  const sides: Side[] = [];
  await using _ownHolder = await startHolder({ master: own.rpcPort, segmentBytes: SEGMENT_BYTES });
  await using _fieldHolder = await startHolder({ master: field.rpcPort, segmentBytes: SEGMENT_BYTES });
  await using ownClient = await startHolder({ master: own.rpcPort, segmentBytes: 0 });
  await using fieldClient = await startHolder({ master: field.rpcPort, segmentBytes: 0 });
  sides.push({ name: "ours", pid: own.pid, holder: ownClient }, { name: "theirs", pid: field.pid, holder: fieldClient });
  for (let round = 0; round < ROUNDS; round++)
    for (const threads of [1, 16]) {
      const prefix = `r${round}-${threads}`;
      for (const what of ["put", "get", "exist", "batch"] as const) {
        const of = samples.get(`${what}, ${threads}`) ?? { ours: [], theirs: [] };
        samples.set(`${what}, ${threads}`, of);
        for (const side of round % 2 === 0 ? sides : sides.toReversed()) of[side.name].push(await measure(side, what, threads, prefix));
      }
    }
}
const rows: Row[] = [];
for (const [name, { ours, theirs }] of samples) {
  const middle = (list: readonly Sample[], of: (sample: Sample) => number) => median(list.map(of));
  const [us, them] = [middle(ours, ({ perSecond }) => perSecond), middle(theirs, ({ perSecond }) => perSecond)];
  rows.push({
    what: `their client, ${name} thread${name.endsWith(" 1") ? "" : "s"}`,
    value: us / them,
    unit: "x",
    goal: { atLeast: 1 },
    samples: ours.length,
    note: `${Math.round(us)}/s on our master against ${Math.round(them)}/s on its own`,
  });
  const [ourCpu, theirCpu] = [middle(ours, ({ cpuMicros }) => cpuMicros), middle(theirs, ({ cpuMicros }) => cpuMicros)];
  rows.push({
    what: "  CPU of the master",
    value: ourCpu / theirCpu,
    unit: "x",
    note: `${ourCpu.toFixed(1)} against ${theirCpu.toFixed(1)} us a call`,
  });
}
report("store-field", rows, Object.fromEntries(samples));
process.exit(0);
