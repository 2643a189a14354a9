// Our master under load: puts during eviction, and the cost of the log with 64 clients.
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { clientID, plain } from "../packages/store/test/calls.ts";
import { startMaster } from "../packages/store/test/master.ts";
import { median, type Row, report } from "./report.ts";
import { buildRaw, Driven, fill, frameOf, keyOf, OBJECT_BYTES, type Process, writeFrames } from "./store-masters.ts";

const ROUNDS = Number(process.env["SVC_BENCH_ROUNDS"] ?? 3);
const MILLION = Number(process.env["SVC_BENCH_KEYS"] ?? 1_000_000);
const CLIENTS = 64;
const PUTS = 20_000;
/** The number of pairs per round: a run with the log and one without. */
const PAIRS = 4;
/** The share of the segment that one eviction frees. */
const EVICTED = 0.05;
const quiet = ["--client_ttl=600s", "--store.suspect_after_ms=600000"];

const folder = mkdtempSync(join(tmpdir(), "svc-bench-"));
const program = buildRaw(folder);
const rows: Row[] = [];
const raw: Record<string, unknown> = {};

const processOf = ({ rpcPort, url, pid }: { rpcPort: number; url: string; pid: number }): Process => ({ rpcPort, httpPort: Number(new URL(url).port), pid });

function file(name: string, frames: readonly Buffer[]): string {
  const path = join(folder, name);
  writeFrames(path, frames);
  return path;
}

const puts = (prefix: string, count: number) =>
  [
    file(
      "start",
      Array.from({ length: count }, (_, at) => frameOf("PutStart", clientID, keyOf(prefix, at), OBJECT_BYTES, plain, "")),
    ),
    file(
      "end",
      Array.from({ length: count }, (_, at) => frameOf("PutEnd", clientID, { key: keyOf(prefix, at), checksum: undefined }, 4, "")),
    ),
  ] as const;

/** Measures the p99 of PutStart, where space is allocated, without eviction and while a twentieth of all keys is evicted. */
async function eviction(): Promise<void> {
  const [calm, pressed]: [number[], number[]] = [[], []];
  // The segment is filled to just below the eviction mark, which the measured puts exceed.
  const segmentBytes = (BigInt(MILLION) * OBJECT_BYTES * 100n) / 95n;
  await using master = await startMaster({ flags: [...quiet, "--store.snapshot_log_bytes=1000000000", `--eviction_ratio=${EVICTED}`] });
  const driven = await Driven.mount("ours", processOf(master), program, segmentBytes);
  await fill(driven, folder, "full", MILLION - PUTS * (ROUNDS + 1));
  const evicted = async () => Number(/^svc_store_evicted_keys_total(?:\{[^}]*\})? (\d+)/m.exec(await (await fetch(`${master.url}/metrics`)).text())?.[1]);
  for (let round = 0; round < ROUNDS; round++) {
    const [start, end] = puts(`calm${round}`, PUTS);
    calm.push((await driven.load(start, 4, 1)).p99);
    await driven.load(end, 4, 1);
  }
  const before = await evicted();
  for (let round = 0; round < ROUNDS; round++) {
    // Each round puts as much as one eviction frees, so it exceeds the mark once.
    const [start, end] = puts(`pressed${round}`, Math.ceil(MILLION * EVICTED));
    pressed.push((await driven.load(start, 4, 1)).p99);
    await driven.load(end, 4, 1);
  }
  const gone = (await evicted()) - before;
  driven.close();
  raw["eviction"] = { calm, pressed, gone };
  rows.push({ what: "puts, p99, quiet", value: median(calm), unit: "us", samples: calm.length });
  rows.push({
    what: `puts, p99, while ${(100 * EVICTED).toFixed(0)} % of ${MILLION} keys are evicted`,
    value: median(pressed),
    unit: "us",
    note: `${gone} evicted`,
  });
  rows.push({ what: "  to the quiet one", value: median(pressed) / median(calm), unit: "x", goal: { atMost: 3 } });
}

/** The log's records are created in both cases; "off" removes its system calls with a preloaded library. */
async function log(): Promise<void> {
  const library = join(folder, "no-log.so");
  execFileSync("g++", ["-std=c++20", "-O2", "-shared", "-fPIC", "-o", library, new URL("store-no-log.cc", import.meta.url).pathname]);
  await using on = await startMaster({ flags: quiet });
  await using off = await startMaster({ flags: quiet, env: { LD_PRELOAD: library } });
  const pair = [await Driven.mount("on", processOf(on), program, 1n << 40n), await Driven.mount("off", processOf(off), program, 1n << 40n)] as const;
  const rates: [number[], number[]] = [[], []];
  const cpu: [number, number] = [0, 0];
  const pairs = ROUNDS * PAIRS;
  for (let round = 0; round < pairs; round++)
    for (const at of round % 2 === 0 ? ([0, 1] as const) : ([1, 0] as const)) {
      const [start, end] = puts(`l${round}`, PUTS);
      const before = pair[at].cpuSeconds();
      const [begun, ended] = [await pair[at].load(start, CLIENTS, 1), await pair[at].load(end, CLIENTS, 1)];
      rates[at].push(1 / (1 / begun.perSecond + 1 / ended.perSecond));
      cpu[at] += pair[at].cpuSeconds() - before;
    }
  for (const each of pair) each.close();
  raw["log"] = { on: rates[0], off: rates[1], cpu };
  // The runs of a pair follow each other, so that other load is nearly the same for both.
  const ratios = rates[0].map((on, at) => on / (rates[1][at] as number));
  rows.push({
    what: `puts with the log on, ${CLIENTS} clients, to those with it off`,
    value: median(ratios),
    unit: "x",
    samples: pairs,
    goal: { atLeast: 0.9 },
    note: `${median(rates[0]).toFixed(0)}/s against ${median(rates[1]).toFixed(0)}/s`,
  });
  const micros = cpu.map((seconds) => (seconds * 1e6) / (pairs * PUTS)) as [number, number];
  rows.push({
    what: "  the master's CPU of a put with it off, to that with it on",
    value: micros[1] / micros[0],
    unit: "x",
    note: `${micros[1].toFixed(1)} us against ${micros[0].toFixed(1)} us`,
  });
}

try {
  await eviction();
  await log();
  report("store-load", rows, raw);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
