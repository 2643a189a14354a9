// Our master under pressure: puts while it evicts, what the log costs 64 clients, and ten million keys.
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { clientID, plain } from "../packages/store/test/calls.ts";
import { startMaster } from "../packages/store/test/master.ts";
import { median, type Row, report } from "./report.ts";
import { buildRaw, Driven, frameOf, type Process, writeFrames } from "./store-masters.ts";

const ROUNDS = Number(process.env["SVC_BENCH_ROUNDS"] ?? 3);
const MILLION = Number(process.env["SVC_BENCH_KEYS"] ?? 1_000_000);
/** Set to 10000000 for the long one: two minutes and 3 GB of memory and files. */
const MANY = Number(process.env["SVC_BENCH_MANY_KEYS"] ?? 0);
const OBJECT_BYTES = 4096n;
const BATCH = 100;
const PART = 100_000;
const CLIENTS = 64;
const PUTS = 20_000;
/** Of the segment: how far it is filled before, and the share that one eviction frees. */
const EVICTED = 0.05;
const quiet = ["--client_ttl=600s", "--store.suspect_after_ms=600000"];

const folder = mkdtempSync(join(tmpdir(), "svc-bench-"));
const program = buildRaw(folder);
const rows: Row[] = [];
const raw: Record<string, unknown> = {};

const processOf = ({ rpcPort, url, pid }: { rpcPort: number; url: string; pid: number }): Process => ({ rpcPort, httpPort: Number(new URL(url).port), pid });
const keyOf = (prefix: string, at: number) => `${prefix}-${String(at).padStart(39 - prefix.length, "0")}`;

function file(name: string, frames: readonly Buffer[]): string {
  const path = join(folder, name);
  writeFrames(path, frames);
  return path;
}

/** Seconds that the puts took. */
async function fill(driven: Driven, prefix: string, count: number): Promise<number> {
  let seconds = 0;
  for (let at = 0; at < count; at += PART) {
    const all = Array.from({ length: Math.min(PART, count - at) / BATCH }, (_, batch) =>
      Array.from({ length: BATCH }, (_each, i) => keyOf(prefix, at + batch * BATCH + i)),
    );
    const sizes = Array.from({ length: BATCH }, () => OBJECT_BYTES);
    const start = file(
      "start",
      all.map((keys) => frameOf("BatchPutStart", clientID, keys, sizes, plain, "")),
    );
    const end = file(
      "end",
      all.map((keys) =>
        frameOf(
          "BatchPutEnd",
          clientID,
          keys.map((key) => ({ key, checksum: undefined })),
          4,
          "",
        ),
      ),
    );
    for (const each of [start, end]) seconds += (await driven.load(each, 4, 4)).seconds;
  }
  return seconds;
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

/** p99 of the starts, which is where room is looked for, quiet and while the twentieth of all keys is evicted. */
async function eviction(): Promise<void> {
  const [calm, pressed]: [number[], number[]] = [[], []];
  // Filled to just below the mark at which eviction begins: the puts that are measured go past it.
  const segmentBytes = (BigInt(MILLION) * OBJECT_BYTES * 100n) / 95n;
  await using master = await startMaster({ flags: [...quiet, "--store.snapshot_log_bytes=1000000000", `--eviction_ratio=${EVICTED}`] });
  const driven = await Driven.mount("ours", processOf(master), program, segmentBytes);
  await fill(driven, "full", MILLION - PUTS * (ROUNDS + 1));
  const evicted = async () => Number(/^svc_store_evicted_keys_total(?:\{[^}]*\})? (\d+)/m.exec(await (await fetch(`${master.url}/metrics`)).text())?.[1]);
  for (let round = 0; round < ROUNDS; round++) {
    const [start, end] = puts(`calm${round}`, PUTS);
    calm.push((await driven.load(start, 4, 1)).p99);
    await driven.load(end, 4, 1);
  }
  const before = await evicted();
  for (let round = 0; round < ROUNDS; round++) {
    // As many as one eviction frees: each round goes past the mark once.
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

/** The log's records are made either way; "off" takes its system calls away, by a library that answers them. */
async function log(): Promise<void> {
  const library = join(folder, "no-log.so");
  execFileSync("g++", ["-std=c++20", "-O2", "-shared", "-fPIC", "-o", library, new URL("store-no-log.cc", import.meta.url).pathname]);
  await using on = await startMaster({ flags: quiet });
  await using off = await startMaster({ flags: quiet, env: { LD_PRELOAD: library } });
  const pair = [await Driven.mount("on", processOf(on), program, 1n << 40n), await Driven.mount("off", processOf(off), program, 1n << 40n)] as const;
  const rates: [number[], number[]] = [[], []];
  for (let round = 0; round < ROUNDS * 2; round++)
    for (const at of round % 2 === 0 ? ([0, 1] as const) : ([1, 0] as const)) {
      const [start, end] = puts(`l${round}`, PUTS);
      const [begun, ended] = [await pair[at].load(start, CLIENTS, 1), await pair[at].load(end, CLIENTS, 1)];
      rates[at].push(1 / (1 / begun.perSecond + 1 / ended.perSecond));
    }
  for (const each of pair) each.close();
  raw["log"] = { on: rates[0], off: rates[1] };
  rows.push({
    what: `puts with the log on, ${CLIENTS} clients, to those with it off`,
    value: median(rates[0]) / median(rates[1]),
    unit: "x",
    goal: { atLeast: 0.9 },
    note: `${median(rates[0]).toFixed(0)}/s against ${median(rates[1]).toFixed(0)}/s`,
  });
}

async function manyKeys(): Promise<void> {
  await using master = await startMaster({ flags: quiet });
  const driven = await Driven.mount("ours", processOf(master), program, 1n << 44n);
  const empty = driven.residentBytes();
  const seconds = await fill(driven, "many", MANY);
  const bytes = (driven.residentBytes() - empty) / MANY;
  rows.push({ what: `${MANY} keys of 40: bytes per key`, value: bytes, unit: "B", goal: { atMost: 200 } });
  rows.push({ what: `${MANY} keys loaded, with snapshots on the way`, value: MANY / seconds, unit: "/s", goal: { atLeast: 200_000 } });
  const asked = file(
    "exist",
    Array.from({ length: PUTS }, (_, at) => frameOf("ExistKey", keyOf("many", Math.floor((at * MANY) / PUTS)), "")),
  );
  const { perSecond, p99 } = await driven.load(asked, 4, 1);
  rows.push({ what: `  exist among them`, value: perSecond, unit: "/s", note: `p99 ${p99.toFixed(0)} us` });
  driven.close();
  await master.kill();
  const begun = performance.now();
  await master.start();
  rows.push({ what: `  restart, until it serves`, value: performance.now() - begun, unit: "ms" });
  raw["many"] = { bytes, seconds };
}

try {
  await eviction();
  await log();
  if (MANY > 0) await manyKeys();
  report("store-load", rows, raw);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
