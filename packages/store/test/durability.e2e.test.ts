// Answered changes survive a killed process, and with durability disk a power failure, simulated by copying the disk under its page cache.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { imageDisk, needsMounts } from "./disk.ts";
import { startMetadataServer } from "./server.ts";

const CUTS = 3;

void test("with durability disk every answered change is there after a power cut at a random moment", needsMounts, async () => {
  using disk = imageDisk(64 << 20);
  await using server = await startMetadataServer(["--durability=disk"], disk.folder);
  const answered = new Map<string, string | undefined>();
  let writing = true;
  const client = async (number: number) => {
    for (let round = 0; writing; round++) {
      const key = `c${number}-${round % 20}`;
      if (round % 5 === 4) {
        await server.fetch(key, { method: "DELETE" });
        answered.set(key, undefined);
        continue;
      }
      const value = `${round}-`.padEnd(100 + ((round * 977) % 20_000), "v");
      const { status } = await server.fetch(key, { method: "PUT", body: value });
      if (status === 200) answered.set(key, value);
    }
  };
  // The clients' failures are checked last, since they may only follow from the failure that ended the test.
  const clients = Promise.allSettled(Array.from({ length: 4 }, (_, number) => client(number)));
  for (let cut = 0; cut < CUTS; cut++) {
    await new Promise((resolve) => setTimeout(resolve, 200 + Math.random() * 400));
    const before = new Map(answered);
    const left = disk.cutPower(server.pid);
    await using restarted = await startMetadataServer([], left.folder);
    for (const [key, value] of before) {
      const response = await restarted.fetch(key);
      const found = response.status === 404 ? undefined : await response.text();
      // The value is the one that was answered, or a later one whose answer is still pending; never an older one.
      const later = Number.parseInt(found ?? "", 10) > Number.parseInt(value ?? "-1", 10);
      assert.ok(found === value || later || (found === undefined && value !== undefined && answered.get(key) !== value), `cut ${cut}, ${key}`);
    }
    assert.equal(spawnSync("ls", [`${left.folder}/metadata/damaged`]).status !== 0, true, "nothing is damaged");
  }
  writing = false;
  for (const outcome of await clients) assert.equal(outcome.status, "fulfilled", JSON.stringify(outcome));
});

void test("with durability process the same power cut loses answered changes, so the test above is able to fail", needsMounts, async () => {
  using disk = imageDisk(64 << 20);
  await using server = await startMetadataServer(["--durability=process"], disk.folder);
  let lost = 0;
  // The kernel may have written the data back once by chance, but not each time.
  for (let cut = 0; cut < CUTS && lost === 0; cut++) {
    const keys = Array.from({ length: 50 }, (_, at) => `cut${cut}-${at}`);
    for (const key of keys) assert.equal((await server.fetch(key, { method: "PUT", body: key })).status, 200);
    const left = disk.cutPower(server.pid);
    await using restarted = await startMetadataServer([], left.folder);
    for (const key of keys) if ((await restarted.fetch(key)).status === 404) lost++;
  }
  assert.ok(lost > 0);
});

void test("with durability process a killed server has what it answered", async () => {
  await using server = await startMetadataServer(["--durability=process"]);
  for (let round = 0; round < 3; round++) {
    const keys = Array.from({ length: 100 }, (_, i) => `r${round}-${i}`);
    await Promise.all(keys.map((key) => server.fetch(key, { method: "PUT", body: key })));
    await server.kill("SIGKILL");
    await server.start();
    for (const key of keys) assert.equal(await (await server.fetch(key)).text(), key);
  }
});

void test("a setting other than memory, process and disk is refused by its name", async () => {
  await assert.rejects(startMetadataServer(["--durability=often"]), /ended with 2/);
});

void test("a second server is refused a home that is in use", async () => {
  await using server = await startMetadataServer();
  await assert.rejects(startMetadataServer([], server.home), /ended with 1/);
});
