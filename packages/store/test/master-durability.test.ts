// Acknowledged changes survive a SIGKILL at any moment, and no key is served before its holder is back.
import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { until } from "@svc/harness/until.ts";
import type { RpcClient } from "../src/rpc/client.ts";
import type { Segment } from "../src/rpc/shapes.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { startMaster, type TestMaster } from "./master.ts";

const GIB = 1n << 30n;

async function mounted(master: TestMaster, segment: Segment): Promise<RpcClient> {
  const rpc = await master.rpc();
  assert.deepEqual(await rpc.call("MountSegment", segment, clientID), { ok: true, value: undefined });
  return rpc;
}

/** Puts until the connection ends; records the keys whose PutEnd was answered, and those whose removal was. */
async function putUntilCut(rpc: RpcClient, prefix: string, kept: Set<string>, gone: Set<string>): Promise<void> {
  for (let at = 0; ; at++) {
    const key = `${prefix}-${at}`;
    try {
      const begun = await rpc.call("PutStart", clientID, key, 64n, plain, "");
      if (!begun.ok) throw new Error(`PutStart: ${begun.code}`);
      const ended = await rpc.call("PutEnd", clientID, { key, checksum: BigInt(at) }, 4, "");
      if (!ended.ok) throw new Error(`PutEnd: ${ended.code}`);
      kept.add(key);
      if (at % 5 !== 4) continue;
      const old = `${prefix}-${at - 2}`;
      // Between request and answer the state of the key is unknown.
      kept.delete(old);
      if ((await rpc.call("Remove", old, true, "")).ok) gone.add(old);
    } catch (error) {
      if (/^Put/.test((error as Error).message)) throw error;
      return;
    }
  }
}

for (const durability of ["process", "disk"])
  void test(`nothing acknowledged is lost when the master is killed repeatedly under puts (${durability})`, async () => {
    await using master = await startMaster({
      flags: [
        "--client_ttl=600s",
        "--store.suspect_after_ms=600000",
        `--durability=${durability}`,
        "--store.log_file_bytes=100000",
        "--store.snapshot_log_bytes=400000",
      ],
    });
    const segment = segmentOf(1, GIB);
    const kept = new Set<string>();
    const gone = new Set<string>();
    // A busy disk accepts only few puts in a round.
    for (let round = 0; round < 6 || (kept.size <= 100 && round < 60); round++) {
      const rpc = await mounted(master, segment);
      const writers = [0, 1, 2].map(async (writer) => putUntilCut(await master.rpc(), `r${round}-w${writer}`, kept, gone));
      await sleep(100 + Math.random() * 300);
      await master.kill();
      await Promise.all(writers);
      rpc.close();
      await master.start();
    }
    assert.ok(kept.size > 100, `only ${kept.size} puts were acknowledged`);
    const rpc = await mounted(master, segment);
    const keys = [...kept];
    for (let at = 0; at < keys.length; at += 100) {
      const found = await rpc.call("BatchGetReplicaList", keys.slice(at, at + 100), "");
      found.forEach((outcome, index) => {
        assert.ok(outcome.ok, `${keys[at + index]} was acknowledged and is lost`);
        assert.equal(outcome.value.checksum, BigInt((keys[at + index] as string).split("-")[2] as string));
      });
    }
    const back = await rpc.call("BatchExistKey", [...gone], "");
    assert.ok(
      back.every((outcome) => outcome.ok && !outcome.value),
      "what was removed is there again",
    );
    rpc.close();
  });

void test("a recovered key is served once its holder is back under its old id, and not before", async () => {
  await using master = await startMaster();
  const segment = segmentOf(1, GIB);
  const rpc = await mounted(master, segment);
  await rpc.call("PutStart", clientID, "k", 64n, plain, "");
  await rpc.call("PutEnd", clientID, { key: "k", checksum: undefined }, 4, "");
  const before = await rpc.call("GetReplicaList", "k", "");
  await master.kill();
  await master.start();
  const again = await master.rpc();
  assert.deepEqual(await again.call("ExistKey", "k", ""), { ok: true, value: false });
  assert.deepEqual(await again.call("Ping", clientID), { ok: true, value: { viewVersion: 0n, status: 2 } });
  assert.deepEqual(await again.call("ExistKey", "k", ""), { ok: true, value: false });
  assert.deepEqual(await again.call("ReMountSegment", [segment], clientID), { ok: true, value: undefined });
  assert.deepEqual(await again.call("Ping", clientID), { ok: true, value: { viewVersion: 0n, status: 1 } });
  const after = await again.call("GetReplicaList", "k", "");
  assert.ok(before.ok && after.ok);
  assert.deepEqual(after.value.replicas[0]?.place, before.value.replicas[0]?.place);
});

void test("a holder that comes back as a new process, or with other memory, has lost its keys", async () => {
  await using master = await startMaster();
  const segment = segmentOf(1, GIB);
  const rpc = await mounted(master, segment);
  const other = segmentOf(2, GIB);
  await rpc.call("MountSegment", other, clientID);
  for (const [key, name] of [
    ["k", segment.name],
    ["l", other.name],
  ] as const) {
    await rpc.call("PutStart", clientID, key, 64n, { ...plain, preferredSegment: name }, "");
    await rpc.call("PutEnd", clientID, { key, checksum: undefined }, 4, "");
  }
  await master.kill();
  await master.start();
  const again = await master.rpc();
  // The same endpoint under another client id means that the old process is gone.
  const next = { ...segment, id: "00000000-0000-0009-0000-000000000009", base: segment.base + GIB };
  assert.deepEqual(await again.call("MountSegment", next, "00000000-0000-0000-0000-00000000beef"), { ok: true, value: undefined });
  // The second segment has its id, but another address.
  assert.deepEqual(await again.call("ReMountSegment", [{ ...other, base: other.base + 4096n }], clientID), { ok: true, value: undefined });
  assert.deepEqual(await again.call("BatchExistKey", ["k", "l"], ""), [
    { ok: true, value: false },
    { ok: true, value: false },
  ]);
  const begun = await again.call("PutStart", clientID, "k", 64n, plain, "");
  assert.ok(begun.ok, "and a put stores it again");
});

void test("a torn tail of the log is cut off; a damaged middle is quarantined: /health is OK, metrics and log report it", async () => {
  await using master = await startMaster({ flags: ["--client_ttl=600s", "--store.suspect_after_ms=600000", "--store.log_file_bytes=65536"] });
  const segment = segmentOf(1, GIB);
  const rpc = await mounted(master, segment);
  const keys = Array.from({ length: 1500 }, (_, at) => `key-${at}`);
  for (const key of keys) {
    await rpc.call("PutStart", clientID, key, 64n, plain, "");
    await rpc.call("PutEnd", clientID, { key, checksum: undefined }, 4, "");
  }
  await master.kill();
  const folder = join(master.home, "store");
  const logs = () => readdirSync(folder).filter((name) => name.endsWith(".log"));
  const last = logs().sort().at(-1) as string;
  writeFileSync(join(folder, last), Buffer.concat([readFileSync(join(folder, last)), Buffer.from("half a frame")]));
  await master.start();
  const second = await mounted(master, segment);
  assert.ok((await second.call("BatchExistKey", keys, "")).every((outcome) => outcome.ok && outcome.value));
  await master.kill();
  const first = logs().sort()[0] as string;
  const bytes = readFileSync(join(folder, first));
  bytes[bytes.length >> 1] = ~(bytes[bytes.length >> 1] as number) & 0xff;
  writeFileSync(join(folder, first), bytes);
  await master.start();
  assert.equal(await (await fetch(`${master.url}/health`)).text(), "OK");
  // The file is renamed in the background, and the metric counts renamed files.
  await until("the metric counts the damaged file", async () =>
    /^svc_store_log_quarantined_files 1$/m.test(await (await fetch(`${master.url}/metrics`)).text()) ? true : undefined,
  );
  assert.match(master.log(), new RegExp(`damaged.*${first}|${first}.*damaged`));
  const third = await mounted(master, segment);
  const found = await third.call("BatchExistKey", keys, "");
  assert.ok(found.at(-1)?.ok && found.some((outcome) => outcome.ok && outcome.value), "what was put after the damage is kept");
  await until("the damaged file has another name", () => (readdirSync(folder).includes(`${first}.damaged`) ? true : undefined));
});

void test("a SIGTERM ends the master with code 0, and a start after it finds everything", async () => {
  await using master = await startMaster();
  const segment = segmentOf(1, GIB);
  const rpc = await mounted(master, segment);
  await rpc.call("PutStart", clientID, "k", 64n, plain, "");
  await rpc.call("PutEnd", clientID, { key: "k", checksum: undefined }, 4, "");
  assert.equal(await master.kill("SIGTERM"), 0);
  await master.start();
  const again = await mounted(master, segment);
  assert.deepEqual(await again.call("ExistKey", "k", ""), { ok: true, value: true });
});
