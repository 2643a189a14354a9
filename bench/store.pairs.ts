// The master's native part beside that of a commit: two masters at a time, each pair on fresh ones, every load on one right after the other.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { startMaster } from "../packages/store/test/master.ts";
import { buildNative } from "./native-build.ts";
import { orderOf, Pairs, type Side } from "./pairs.ts";
import { progress } from "./report.ts";
import { buildRaw, Driven } from "./store-masters.ts";
import { measure, storeSteps } from "./store-steps.ts";

const KEYS = 40_000;
const DEPTH = 16;
const SEGMENT_BYTES = 1n << 40n;
const NATIVE = process.env["SVC_STORE_NATIVE"] || fileURLToPath(new URL("../packages/store/native/build/svc_store.node", import.meta.url));

const [commit = "", pairs = ""] = process.argv.slice(2);
const found = new Pairs();
const built = await buildNative("store", commit);
const addons: Readonly<Record<Side, string>> = { old: join(built.folder, "svc_store.node"), new: NATIVE };
const folder = mkdtempSync(join(tmpdir(), "svc-bench-"));

async function open(side: Side, program: string) {
  const master = await startMaster({ flags: ["--store.snapshot_log_bytes=1000000000"], env: { SVC_STORE_NATIVE: addons[side] } });
  const driven = await Driven.mount(side, { rpcPort: master.rpcPort, httpPort: Number(new URL(master.url).port), pid: master.pid }, program, SEGMENT_BYTES);
  /** The time that all operations took inside of the master, without sockets and system calls. */
  async function coreSeconds(): Promise<number> {
    const text = await (await fetch(`${master.url}/metrics`)).text();
    return [...text.matchAll(/^svc_store_rpc_seconds_sum\{.*\} (\S+)$/gm)].reduce((sum, [, seconds]) => sum + Number(seconds), 0);
  }
  async function close(): Promise<void> {
    driven.close();
    await master[Symbol.asyncDispose]();
  }
  return { driven, coreSeconds, close };
}

try {
  const program = buildRaw(folder);
  const steps = storeSteps(folder, KEYS, { single: 2, batch: 20 });
  for (let pair = 0; pair < Number(pairs); pair++) {
    progress(`pair ${pair + 1} of ${pairs}`);
    const order = orderOf(pair);
    const opened = new Map<Side, Awaited<ReturnType<typeof open>>>();
    for (const side of order) opened.set(side, await open(side, program));
    for (const step of steps) {
      const files = step.files(`p${pair}`);
      for (const side of order) {
        const { driven, coreSeconds } = opened.get(side) as Awaited<ReturnType<typeof open>>;
        const before = await coreSeconds();
        const { perSecond, cpuMicros, calls } = await measure(driven, files, DEPTH);
        const core = (await coreSeconds()) - before;
        const what = step.what.replace(", keys", "");
        found.add(`${what}: in the core, per key`, "ns", "lower", side, (core * 1e9) / (calls * step.per));
        found.add(`${what}: CPU of the master, per key`, "ns", "lower", side, (cpuMicros * 1e3) / step.per);
        found.add(`${what}: keys`, "/s", "higher", side, perSecond * step.per);
      }
    }
    for (const { close } of opened.values()) await close();
  }
  process.exitCode = found.report("store", built.commit);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
