// The SSD tier compared with its disk: reads of 1 MiB from LOCAL_DISK and raw reads of the same files, offload and raw writes, and the
// master's latency meanwhile.

import { execFileSync, spawn } from "node:child_process";
import { closeSync, constants, openSync, readdirSync, readSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { endWithUs } from "@svc/harness/children.ts";
import { openClient, startClient } from "../packages/store/test/client.ts";
import { startMaster } from "../packages/store/test/master.ts";
import { bytesOf, filesIn, makeFolder } from "../packages/store/test/ssd.ts";
import { cpuSeconds } from "./process-usage.ts";
import { median, percentile, type Row, report } from "./report.ts";
import { frameOf, writeFrames } from "./store-masters.ts";

const MIB = 2 ** 20;
const ROUNDS = Number(process.env["SVC_BENCH_ROUNDS"] ?? 5);
/** The number of objects of 1 MiB, for each round of offload and for the reads. */
const OBJECTS = Number(process.env["SVC_BENCH_OBJECTS"] ?? 256);
const FOLDER = process.env["SVC_BENCH_FOLDER"];
const PAGE = 4096;
const QUIET_MS = 3000;
/** An owner writes files with this many threads. */
const WRITERS = 4;
/** The interval of progress queries, which take time from the owner. */
const ASK_MS = 10;
const flags = ["--enable_offload=true", "--default_kv_lease_ttl=200", "--client_ttl=600s", "--store.suspect_after_ms=600000"];

/** MiB/s for this number of objects of 1 MiB. */
const rate = (count: number, tookMs: number) => (count * 1000) / tookMs;

/** Returns the part of an area into which a file can be read with O_DIRECT; the required alignment depends on the file system. */
function alignedIn(area: Uint8Array, path: string): Uint8Array {
  const fd = openSync(path, constants.O_RDONLY | constants.O_DIRECT);
  try {
    for (let from = 0; from < PAGE; from += 8) {
      try {
        readSync(fd, area, from, PAGE, 0);
        return area.subarray(from, from + MIB);
      } catch {
        // The file system refused this alignment.
      }
    }
  } finally {
    closeSync(fd);
  }
  throw new Error(`${path} cannot be read past the page cache: name a folder on a disk in SVC_BENCH_FOLDER`);
}

function rawReads(paths: readonly string[], into: Uint8Array): number {
  const begun = performance.now();
  for (const path of paths) {
    const fd = openSync(path, constants.O_RDONLY | constants.O_DIRECT);
    readSync(fd, into, 0, MIB, 0);
    closeSync(fd);
  }
  return rate(paths.length, performance.now() - begun);
}

/**
 * Writes with as many threads as an owner, from memory that is in no cache; returns MiB/s. The files stay, because ext4 without a journal
 * checks every recently deleted inode before it creates a file, which would dominate the measurement.
 */
function rawWrites(path: string, way: "direct" | "cached"): number {
  const [perSecond, cpuMs] = JSON.parse(execFileSync(program, ["write", path, `${OBJECTS}`, `${WRITERS}`, way], { encoding: "utf8" })) as [number, number];
  note(`${way}Cpu`, [cpuMs]);
  return perSecond;
}

/** Writes earlier data to the disk before the measurement, and frees its pages for reuse. */
const settle = () => execFileSync(program, ["forget", folder.path]);

/** Queries once a millisecond in a separate process until the promise settles; returns the latencies in microseconds. */
async function answersUntil<T>(over: () => Promise<T>): Promise<{ micros: readonly number[]; isFirst: boolean; value: T }> {
  const child = spawn(program, ["ask", frame, `${master.rpcPort}`], { stdio: ["pipe", "pipe", "inherit"] });
  endWithUs(child);
  const said = child.stdout.setEncoding("utf8").toArray();
  const value = await over();
  child.stdin.end();
  return { ...(JSON.parse((await said).join("")) as { micros: number[]; isFirst: boolean }), value };
}

const raw: Record<string, number[]> = Object.fromEntries(
  ["offload", "direct", "cached", "reads", "rawReads", "quiet", "busy", "besideRaw", "ownerCpu", "masterCpu", "directCpu", "cachedCpu"].map((name) => [
    name,
    [],
  ]),
);
const note = (name: string, values: readonly number[]) => raw[name]?.push(...values);
const bytes = bytesOf("bench", MIB);
await using folder = makeFolder(FOLDER);
await using master = await startMaster({ flags });
const program = join(folder.path, "store-ssd");
execFileSync("g++", ["-std=c++20", "-O2", "-o", program, new URL("store-ssd.cc", import.meta.url).pathname]);
const frame = join(folder.path, "frame");
writeFrames(frame, [frameOf("ExistKey", "nothing", "")]);
let isFirst = true;
{
  await using holder = await startClient(master, { segmentBytes: (ROUNDS + 1) * OBJECTS * MIB, ssdFolder: join(folder.path, "offload") });
  await using writer = await openClient(master);
  const usedMiB = async () => (await holder.ask<{ usedBytes: number }>("disk")).usedBytes / MIB;
  await writer.put("first", bytes);
  while ((await usedMiB()) < 1) await sleep(20);
  for (let round = 0; round < ROUNDS; round++) {
    settle();
    // The effect of any burst of writes on the master's latency on this machine.
    const beside = await answersUntil(async () => rawWrites(join(folder.path, `direct-${round}`), "direct"));
    note("direct", [beside.value]);
    note("besideRaw", beside.micros);
    settle();
    note("cached", [rawWrites(join(folder.path, `cached-${round}`), "cached")]);
    settle();
    // The owner is stopped during the puts, so that puts and offload do not compete.
    await holder.freeze();
    for (let at = 0; at < OBJECTS; at++) await writer.put(`offload-${round}-${at}`, bytes);
    note("quiet", (await answersUntil(() => sleep(QUIET_MS))).micros);
    const cpuBefore = [cpuSeconds(holder.pid), cpuSeconds(master.pid)];
    const busy = await answersUntil(async () => {
      holder.thaw();
      const begun = performance.now();
      while ((await usedMiB()) < (round + 1) * OBJECTS) await sleep(ASK_MS);
      return rate(OBJECTS, performance.now() - begun);
    });
    note("offload", [busy.value]);
    note("busy", busy.micros);
    note("ownerCpu", [((cpuSeconds(holder.pid) - (cpuBefore[0] as number)) * 1000) / OBJECTS]);
    note("masterCpu", [((cpuSeconds(master.pid) - (cpuBefore[1] as number)) * 1000) / OBJECTS]);
    isFirst &&= busy.isFirst;
  }
}
{
  const place = join(folder.path, "reads");
  await using _holder = await startClient(master, { segmentBytes: 8 * MIB, ssdFolder: place });
  await using reader = await openClient(master);
  const keys = Array.from({ length: OBJECTS }, (_, at) => `read-${at}`);
  for (const [at, key] of keys.entries()) {
    await reader.put(key, bytes);
    while (filesIn(place).length <= at) await sleep(2);
  }
  const paths = readdirSync(place).flatMap((name) => (filesIn(place).includes(name) ? [join(place, name)] : []));
  const area = new Uint8Array(MIB + 2 * PAGE);
  await reader.registerBuffer(area);
  const into = alignedIn(area, paths[0] as string);
  // The last objects are still in memory.
  const onDisk = keys.slice(0, OBJECTS - 16);
  for (let round = 0; round < ROUNDS; round++) {
    note("rawReads", [rawReads(paths.slice(0, onDisk.length), into)]);
    const begun = performance.now();
    for (const key of onDisk) if (reader.getIntoSync(key, into) !== MIB) throw new Error(`${key} is not there`);
    note("reads", [rate(onDisk.length, performance.now() - begun)]);
  }
}

const of = (name: string) => raw[name] ?? [];
const ratio = (one: string, other: string) => median(of(one).map((value, at) => value / (of(other)[at] as number)));
const rows: Row[] = [
  { what: "reads of 1 MiB from LOCAL_DISK", value: median(of("reads")), unit: "MiB/s", samples: ROUNDS },
  { what: "raw reads of the same files", value: median(of("rawReads")), unit: "MiB/s", samples: ROUNDS },
  { what: "reads, as a share of raw ones", value: ratio("reads", "rawReads"), unit: "", goal: { atLeast: 0.8 } },
  { what: "offload", value: median(of("offload")), unit: "MiB/s", samples: ROUNDS },
  { what: "raw writes past the page cache", value: median(of("direct")), unit: "MiB/s", samples: ROUNDS },
  { what: "raw writes into the page cache", value: median(of("cached")), unit: "MiB/s", samples: ROUNDS },
  { what: "offload, as a share of raw writes past the page cache", value: ratio("offload", "direct"), unit: "", goal: { atLeast: 0.7 } },
  { what: "the same of those into the page cache", value: ratio("offload", "cached"), unit: "", goal: { atLeast: 0.7 } },
  { what: "processor time for each MiB: raw writes' past the page cache", value: median(of("directCpu")), unit: "ms", samples: ROUNDS },
  { what: "  raw writes' into it", value: median(of("cachedCpu")), unit: "ms", samples: ROUNDS },
  { what: "  the owner's", value: median(of("ownerCpu")), unit: "ms", samples: ROUNDS },
  { what: "  and the master's", value: median(of("masterCpu")), unit: "ms", samples: ROUNDS },
  {
    what: "the master's answer, quiet: p99",
    value: percentile(of("quiet"), 0.99),
    unit: "us",
    samples: of("quiet").length,
    note: isFirst ? "asked at real-time priority" : "",
  },
  { what: "the same during offload", value: percentile(of("busy"), 0.99), unit: "us", samples: of("busy").length },
  { what: "the same beside raw writes past the page cache", value: percentile(of("besideRaw"), 0.99), unit: "us", samples: of("besideRaw").length },
  { what: "beside raw writes, how many times as long as quiet", value: percentile(of("besideRaw"), 0.99) / percentile(of("quiet"), 0.99), unit: "" },
  {
    what: "during offload, how many times as long as quiet",
    value: percentile(of("busy"), 0.99) / percentile(of("quiet"), 0.99),
    unit: "",
    goal: { atMost: 1.5 },
  },
];
report("store-ssd", rows, raw);
