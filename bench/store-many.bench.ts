// Ten million keys in our master: memory, loading, lookups among them, and two restarts; takes two minutes and 3 GB of memory and files.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startMaster } from "../packages/store/test/master.ts";
import { type Row, report } from "./report.ts";
import { buildRaw, Driven, fill, frameOf, keyOf, writeFrames } from "./store-masters.ts";

const KEYS = Number(process.env["SVC_BENCH_MANY_KEYS"] ?? 10_000_000);
const ASKED = 20_000;
const RESTARTS = 2;

const folder = mkdtempSync(join(tmpdir(), "svc-bench-"));
const rows: Row[] = [];
const raw: Record<string, unknown> = {};

try {
  // The long client TTL keeps the master from expiring its client during the restarts.
  await using master = await startMaster({ flags: ["--client_ttl=600s", "--store.suspect_after_ms=600000"], level: "info" });
  const processOf = () => ({ rpcPort: master.rpcPort, httpPort: Number(new URL(master.url).port), pid: master.pid });
  const driven = await Driven.mount("ours", processOf(), buildRaw(folder), 1n << 44n);
  const empty = driven.residentBytes();
  const [cpuBefore, seconds] = [driven.cpuSeconds(), await fill(driven, folder, "many", KEYS)];
  const cpu = driven.cpuSeconds() - cpuBefore;
  const bytes = (driven.residentBytes() - empty) / KEYS;
  rows.push({ what: `${KEYS} keys of 40: bytes per key`, value: bytes, unit: "B", goal: { atMost: 200 } });
  rows.push({
    what: "loaded by batches of 100, with snapshots on the way",
    value: KEYS / seconds,
    unit: "/s",
    goal: { atLeast: 200_000 },
    note: `${((cpu * 1e6) / KEYS).toFixed(2)} us of CPU a key`,
  });
  const asked = join(folder, "exist");
  const steps = Array.from({ length: ASKED }, (_, at) => Math.floor((at * KEYS) / ASKED));
  writeFrames(
    asked,
    steps.map((at) => frameOf("ExistKey", keyOf("many", at), "")),
  );
  const before = await driven.load(asked, 4, 1);
  rows.push({ what: "exist among them", value: before.perSecond, unit: "/s", note: `p99 ${before.p99.toFixed(0)} us` });
  driven.close();
  const restarts: unknown[] = [];
  for (let round = 0; round < RESTARTS; round++) {
    await master.kill();
    const [said, begun] = [master.log().length, performance.now()];
    await master.start();
    const tookMs = performance.now() - begun;
    const recovery = JSON.parse(/"recovery":(\{[^}]*\})/.exec(master.log().slice(said))?.[1] ?? "{}") as { ms?: number; records?: number; objects?: number };
    if (recovery.objects !== KEYS) throw new Error(`${recovery.objects} of ${KEYS} keys came back`);
    restarts.push({ tookMs, ...recovery });
    rows.push({
      what: `restart ${round + 1}, until it serves`,
      value: tookMs,
      unit: "ms",
      note: `${recovery.records} records read in ${recovery.ms} ms; every key is back`,
    });
  }
  raw["many"] = { bytes, seconds, cpu, before, restarts };
  report("store-many", rows, raw);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
