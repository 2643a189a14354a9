// SIGKILL of a client, a holder and the master at each step of each operation: acknowledged changes survive, no bytes are mixed, no space is lost.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { endWithUs } from "@svc/harness/children.ts";
import { until } from "@svc/harness/until.ts";
import type { StoreClient } from "../src/client/store-client.ts";
import { type ClientProcess, openClient, startClient } from "./client.ts";
import { startMaster, type TestMaster } from "./master.ts";
import type { Row, Said, Step, StepsSetup } from "./steps-process.ts";

const SCRIPT = fileURLToPath(new URL("steps-process.ts", import.meta.url));
const MIB = 1 << 20;
const SIZE = 8192;
const FLAGS = [
  "--client_ttl=10s",
  "--store.suspect_after_ms=2500",
  "--put_start_discard_timeout_sec=2",
  "--put_start_release_timeout_sec=2",
  "--default_kv_lease_ttl=500ms",
];

const old = (key: string) => Buffer.alloc(SIZE, `old ${key};`);
const fresh = (key: string, sizeBytes = SIZE) => Buffer.alloc(sizeBytes, `new ${key};`);

const steps: readonly Step[] = ["begun", "written", "ended"];
const writing = ["put", "extent", "upsert", "replace", "copy", "move"] as const;
const rows: readonly Row[] = [
  ...writing.flatMap((op) => steps.map((stopAt) => ({ op, key: `${op}-${stopAt}`, stopAt }))),
  { op: "remove", key: "remove-ended", stopAt: "ended" },
];
const hadBytes = ({ op }: Row) => op !== "put" && op !== "extent";

async function startSteps(setup: StepsSetup): Promise<{ said: Record<string, Said>; resume(): Promise<Record<string, Said>>; kill(): Promise<void> }> {
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", SCRIPT, JSON.stringify(setup)], { stdio: ["pipe", "pipe", "inherit"] });
  endWithUs(child);
  child.stdin.on("error", () => {});
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async () => {
    const line = await lines.next();
    if (line.done === true) throw new Error("the client ended");
    return JSON.parse(line.value) as Record<string, Said>;
  };
  return {
    said: await next(),
    resume() {
      child.stdin.write("go on\n");
      return next();
    },
    async kill() {
      child.kill("SIGKILL");
      await ended;
    },
  };
}

async function usedBytes(master: TestMaster): Promise<number> {
  const { segments } = (await (await fetch(`${master.url}/get_segments_detail`)).json()) as { segments: { allocator_used_bytes: number }[] };
  return segments.reduce((sum, each) => sum + each.allocator_used_bytes, 0);
}

/** Checks that all allocated space belongs to readable objects. */
async function requireNoLeak(master: TestMaster, client: StoreClient): Promise<void> {
  let last = "";
  await until("no space is lost", async () => {
    const keys = (await (await fetch(`${master.url}/get_all_keys`)).text()).split("\n").filter((key) => key !== "");
    let readable = 0;
    for (const key of keys) for (const replica of await client.replicas(key).catch(() => [])) readable += replica.sizeBytes;
    const used = await usedBytes(master);
    last = `${used} bytes are used, ${readable} can be read`;
    return used === readable ? true : undefined;
  }).catch((error: Error) => assert.fail(`${error.message}: ${last}`));
}

async function requireWorking(client: StoreClient, what: string): Promise<void> {
  for (let at = 0; at < 20; at++) {
    const key = `${what}-${at}`;
    assert.equal(await client.put(key, fresh(key)), true, key);
    assert.deepEqual(await client.get(key), fresh(key), key);
  }
}

async function judge(client: StoreClient, said: Record<string, Said>, dead: string | undefined, holders: readonly ClientProcess[]): Promise<void> {
  for (const row of rows) {
    const { op, key } = row;
    const now = await client.get(key);
    const isDone = said[key]?.isDone === true;
    const where = (await client.replicas(key).catch(() => [])).map(({ endpoint }) => endpoint);
    const what = `${key}: ${now === undefined ? "nothing" : now.subarray(0, 20).toString()} at ${where}, told ${JSON.stringify(said[key])}`;
    const newBytes = fresh(key, op === "replace" ? 2 * SIZE : SIZE);
    const oldBytes = hadBytes(row) ? old(key) : undefined;
    const writes = op !== "copy" && op !== "move" && op !== "remove";
    const allowed = [undefined, oldBytes, writes ? newBytes : undefined];
    assert.ok(
      allowed.some((each) => (each === undefined ? now === undefined : now?.equals(each) === true)),
      `wrong bytes: ${what}`,
    );
    assert.ok(!where.includes(dead ?? ""), `a dead holder is named: ${what}`);
    if (op === "remove" && isDone) assert.equal(now, undefined, what);
    // Objects on the killed holder are gone; everything else that was acknowledged exists.
    if (isDone && writes && dead === undefined) assert.ok(now?.equals(newBytes) === true, `lost: ${what}`);
    if (isDone && writes && now !== undefined) assert.ok(now.equals(newBytes), `an older value than was acknowledged: ${what}`);
    if (op === "copy" || op === "move") {
      if (isDone) assert.ok(where.includes(holders[1]?.name ?? ""), `the copy is not there: ${what}`);
      if (dead === undefined) assert.ok(now?.equals(old(key)) === true, `lost: ${what}`);
    }
  }
}

for (const victim of ["client", "holder", "master"] as const)
  void test(`a ${victim} killed at each step of put, upsert, copy, move and remove loses nothing acknowledged, mixes no bytes and leaks no space`, async () => {
    await using master = await startMaster({ flags: FLAGS });
    await using first = await startClient(master, { segmentBytes: 4 * MIB });
    await using second = await startClient(master, { segmentBytes: 4 * MIB });
    await using client = await openClient(master, { leasesAhead: false, timeoutMs: 60_000 });
    for (const row of rows.filter(hadBytes)) await client.put(row.key, old(row.key), { preferredSegments: [first.name] });
    const stepper = await startSteps({ master: `127.0.0.1:${master.rpcPort}`, rows, source: first.name, target: second.name, sizeBytes: SIZE });
    try {
      let said = stepper.said;
      if (victim === "client") await stepper.kill();
      if (victim === "holder") await first.kill();
      if (victim === "master") {
        await master.kill();
        await master.start();
      }
      await requireWorking(client, "others");
      if (victim !== "client") said = await stepper.resume();
      assert.ok(Object.values(said).filter(({ isDone }) => isDone === true).length >= steps.length, JSON.stringify(said));
      for (const { name } of victim === "holder" ? [second] : [first, second])
        await until(`${name} is known`, async () => {
          const key = `at-${name}-${Math.random()}`;
          await client.put(key, fresh(key), { preferredSegments: [name] });
          return (await client.replicas(key))[0]?.endpoint === name ? true : undefined;
        });
      await until("unfinished puts are over", async () => {
        const text = await (await fetch(`${master.url}/metrics`)).text();
        return /^svc_store_unfinished_puts 0$/m.test(text) ? true : undefined;
      });
      await judge(client, said, victim === "holder" ? first.name : undefined, [first, second]);
      await requireNoLeak(master, client);
      await requireWorking(client, "later");
    } finally {
      await stepper.kill();
    }
  });

void test("a client, a holder and the master killed while a full store evicts leave right bytes, no lost space, and puts that continue", async () => {
  await using master = await startMaster({ flags: FLAGS });
  await using _stays = await startClient(master, { segmentBytes: 2 * MIB });
  await using client = await openClient(master, { leasesAhead: false, timeoutMs: 60_000 });
  let at = 0;
  const fill = async (count: number) => {
    for (const end = at + count; at < end; at++) assert.equal(await client.put(`e${at}`, fresh(`e${at}`)), true);
  };
  await fill(300);
  for (const victim of ["client", "holder", "master"] as const) {
    await using dies = await startClient(master, { segmentBytes: victim === "client" ? 0 : 2 * MIB, timeoutMs: 60_000 });
    const filling = (async () => {
      // Failures of these puts are ignored; only their side effects are checked.
      for (let own = 0; own < 400; own++) {
        const isOver = await dies.ask("put", `${victim}-${own}`, fresh(`${victim}-${own}`).toString("base64")).then(
          () => false,
          (error: Error) => /ENDED/.test(error.message),
        );
        if (isOver) return;
      }
    })();
    await fill(150);
    if (victim === "master") {
      await master.kill();
      await master.start();
    } else await dies.kill();
    await fill(300);
    await dies.kill();
    await filling;
    const keys = (await (await fetch(`${master.url}/get_all_keys`)).text()).split("\n").filter((key) => key !== "");
    for (const key of keys) {
      const found = await client.get(key);
      if (found !== undefined) assert.ok(found.equals(fresh(key)), `wrong bytes of ${key}`);
    }
  }
  assert.match(await (await fetch(`${master.url}/metrics`)).text(), /^svc_store_evicted_keys_total [1-9]/m);
  await requireNoLeak(master, client);
});
