// The store's master compared with Mooncake's: raw RPC, bytes per key, load rate and HTTP, interleaved on the same machine.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { clientID, plain } from "../packages/store/test/calls.ts";
import { startMaster, startMooncakeMaster } from "../packages/store/test/master.ts";
import { median, type Row, report } from "./report.ts";
import { buildRaw, Driven, frameOf, keyOf, type Load, OBJECT_BYTES, type Process, writeFrames } from "./store-masters.ts";
import { BATCH, batches, CONNECTIONS, measure, storeSteps } from "./store-steps.ts";

const ROUNDS = Number(process.env["SVC_BENCH_ROUNDS"] ?? 3);
const KEYS = 20_000;
const SEGMENT_BYTES = 1n << 40n;
const MILLION = Number(process.env["SVC_BENCH_KEYS"] ?? 1_000_000);

const folder = mkdtempSync(join(tmpdir(), "svc-bench-"));
const program = buildRaw(folder);
const rows: Row[] = [];
const raw: Record<string, unknown> = {};

function file(name: string, frames: readonly Buffer[]): string {
  const path = join(folder, name);
  writeFrames(path, frames);
  return path;
}

const steps = storeSteps(folder, KEYS);
const sizes = Array.from({ length: BATCH }, () => OBJECT_BYTES);

async function rawRpc(pair: readonly [Driven, Driven]): Promise<void> {
  for (const depth of [1, 16]) {
    const samples = new Map<string, [Load[], Load[]]>();
    for (let round = 0; round < ROUNDS; round++)
      for (const step of steps) {
        const files = step.files(`d${depth}r${round}`);
        const found = samples.get(step.what) ?? [[], []];
        samples.set(step.what, found);
        for (const at of round % 2 === 0 ? ([0, 1] as const) : ([1, 0] as const)) found[at].push(await measure(pair[at], files, depth));
      }
    for (const step of steps) {
      const [ours, theirs] = samples.get(step.what) as [Load[], Load[]];
      const middle = (loads: readonly Load[], of: (load: Load) => number) => median(loads.map(of));
      const [us, them] = [middle(ours, (load) => load.perSecond) * step.per, middle(theirs, (load) => load.perSecond) * step.per];
      const cpu = middle(ours, (load) => load.cpuMicros) / middle(theirs, (load) => load.cpuMicros);
      const what = `${step.what}, depth ${depth}`;
      rows.push({
        what,
        value: us / them,
        unit: "x",
        goal: { atLeast: step.goals[depth === 1 ? 0 : 1] },
        note: `${us.toFixed(0)}/s against ${them.toFixed(0)}/s`,
      });
      const micros = `${middle(ours, (load) => load.cpuMicros).toFixed(1)} against ${middle(theirs, (load) => load.cpuMicros).toFixed(1)} us a call`;
      rows.push({ what: `  CPU of it`, value: cpu, unit: "x", goal: { atMost: 0.5 }, note: micros });
      raw[what] = { ours, theirs };
    }
  }
}

async function manyKeys(pair: readonly [Driven, Driven]): Promise<void> {
  for (const driven of pair) {
    const empty = driven.residentBytes();
    const begun = performance.now();
    const part = 100_000;
    let loading = 0;
    for (let at = 0; at < MILLION; at += part) {
      const all = batches(`m${at / part}`, part);
      const start = file(
        "start",
        all.map((keys) => frameOf("BatchPutStart", clientID, keys, sizes, plain, "")),
      );
      const ends = all.map((keys) => keys.map((key) => ({ key, checksum: undefined })));
      const end = file(
        "end",
        ends.map((metas) => frameOf("BatchPutEnd", clientID, metas, 4, "")),
      );
      for (const each of [start, end]) loading += (await driven.load(each, CONNECTIONS, 4)).seconds;
    }
    const bytes = (driven.residentBytes() - empty) / MILLION;
    const ours = driven === pair[0];
    rows.push({ what: `${driven.name}: bytes per key of 40, ${MILLION} keys`, value: bytes, unit: "B", ...(ours ? { goal: { atMost: 200 } } : {}) });
    rows.push({ what: `${driven.name}: keys loaded`, value: MILLION / loading, unit: "/s", ...(ours ? { goal: { atLeast: 200_000 } } : {}) });
    raw[`${driven.name} load`] = { bytes, loading, wall: performance.now() - begun };
  }
}

async function http(pair: readonly [Driven, Driven]): Promise<void> {
  const asks = Array.from({ length: KEYS }, (_, at) => Buffer.from(`GET /query_key?key=${keyOf("m0", at)} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`));
  const path = file("http", asks);
  const found: [Load[], Load[]] = [[], []];
  for (let round = 0; round < ROUNDS; round++) for (const at of [0, 1] as const) found[at].push(await pair[at].load(path, 16, 1, "http"));
  const [us, them] = found.map((loads) => median(loads.map((load) => load.perSecond))) as [number, number];
  rows.push({
    what: "HTTP /query_key, 16 connections",
    value: us / them,
    unit: "x",
    goal: { atLeast: 1.2 },
    note: `${us.toFixed(0)}/s against ${them.toFixed(0)}/s`,
  });
  raw["http"] = found;
}

try {
  await using own = await startMaster({ flags: ["--store.snapshot_log_bytes=1000000000"] });
  await using field = await startMooncakeMaster();
  const ours: Process = { rpcPort: own.rpcPort, httpPort: Number(new URL(own.url).port), pid: own.pid };
  const pair = [await Driven.mount("ours", ours, program, SEGMENT_BYTES), await Driven.mount("theirs", field, program, SEGMENT_BYTES)] as const;
  await rawRpc(pair);
  for (const driven of pair) await driven.rpc.call("RemoveAll", true, "");
  await manyKeys(pair);
  await http(pair);
  const begun = performance.now();
  await own.kill();
  await own.start();
  rows.push({ what: `ours: restart with ${MILLION} keys, until it serves`, value: performance.now() - begun, unit: "ms", goal: { atMost: 2000 } });
  for (const driven of pair) driven.close();
  report("store", rows, raw);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
