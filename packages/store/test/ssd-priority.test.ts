// Offload must not delay other work: threads that write files have low priority, and the master's thread answers soon.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { openClient } from "./client.ts";
import { startMaster } from "./master.ts";
import { makeFolder } from "./ssd.ts";

const NICE = 10;
const SCHED_BATCH = 3;
const SLICE_NS = 100_000;

type Thread = { readonly name: string; readonly folder: string; readonly nice: number; readonly policy: number };

function threadsOf(pid: number): Thread[] {
  return readdirSync(`/proc/${pid}/task`).map((id) => {
    const folder = `/proc/${pid}/task/${id}`;
    const [, name = "", rest = ""] = /^\d+ \((.*)\) (.*)$/.exec(readFileSync(`${folder}/stat`, "utf8").trim()) ?? [];
    const fields = rest.split(" ");
    return { name, folder, nice: Number(fields[16]), policy: Number(fields[38]) };
  });
}

void test("threads that store objects on disk have low priority, and the master's answering thread does not", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: ["--enable_offload=true"] });
  await using client = await openClient(master, { segmentBytes: 2 ** 20, ssdFolder: folder.path });
  assert.equal(await client.put("one", Buffer.from("value")), true);
  const [own] = threadsOf(process.pid);
  const writers = threadsOf(process.pid).filter(({ name }) => name === "store-files");
  assert.equal(writers.length, 4);
  for (const { nice, policy } of writers) assert.deepEqual({ nice, policy }, { nice: Math.max(NICE, own?.nice ?? 0), policy: own?.policy || SCHED_BATCH });
  const [answering] = threadsOf(master.pid).filter(({ name }) => name === "store-rpc");
  assert.equal(answering?.nice, own?.nice);
  // Kernels before 6.12 have no slices per thread, and not every kernel shows them.
  const sliceNs = (of: string) => Number(/^se\.slice\s*:\s*(\d+)/m.exec(readFileSync(`${of}/sched`, "utf8"))?.[1] ?? Number.NaN);
  const [major = 0, minor = 0] = readFileSync("/proc/sys/kernel/osrelease", "utf8").split(".").map(Number);
  const hasSlices = major > 6 || (major === 6 && minor >= 12);
  if (hasSlices && readdirSync("/proc/self").includes("sched") && !Number.isNaN(sliceNs("/proc/self")))
    assert.equal(sliceNs(answering?.folder ?? ""), SLICE_NS);
});

void test("an owner's calls while it stores are answered by the master's native thread, without TypeScript", async () => {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: ["--enable_offload=true"] });
  await using client = await openClient(master, { segmentBytes: 2 ** 20, ssdFolder: folder.path });
  assert.equal(await client.put("one", Buffer.from("value")), true);
  const answered = async (operation: string) => {
    const text = await (await fetch(`${master.url}/metrics`)).text();
    return Number(new RegExp(`^svc_store_rpc_seconds_count\\{operation="${operation}"\\} (\\d+)$`, "m").exec(text)?.[1] ?? 0);
  };
  for (const operation of ["take_disk_orders", "keep_files"])
    await until(`the thread that answers counts ${operation}`, async () => ((await answered(operation)) > 0 ? true : undefined));
});
