// The metadata server on a full disk: changes that cannot be stored are refused and not visible, everything else continues.
import assert from "node:assert/strict";
import { test } from "node:test";
import { needsMounts, smallDisk } from "./disk.ts";
import { startMetadataServer, type TestServer } from "./server.ts";

const VALUE_BYTES = 20_000;
const put = async (server: TestServer, key: string, value: string) => (await server.fetch(key, { method: "PUT", body: value })).status;

/** Every key has the value that was answered with 200 last, and there are no other keys. */
async function holds(server: TestServer, expected: ReadonlyMap<string, string>): Promise<void> {
  const found = (await (await fetch(`${server.url}?prefix=`)).json()) as Record<string, string>;
  assert.deepEqual(new Map(Object.entries(found).sort()), new Map([...expected].sort()));
}

for (const durability of ["process", "disk"] as const)
  void test(
    `with durability ${durability} a full disk refuses values with 507, shows none of them, accepts deletions, and accepts values again once there is space`,
    needsMounts,
    async () => {
      using disk = smallDisk(4 << 20);
      await using server = await startMetadataServer([`--durability=${durability}`], disk.folder);
      const kept = new Map<string, string>();
      let refused = 0;
      for (let i = 0; refused < 20; i++) {
        assert.ok(i < 1000);
        const value = `${i}-`.padEnd(VALUE_BYTES, "x");
        const key = `k${i % 150}`;
        const status = await put(server, key, value);
        if (status === 200) kept.set(key, value);
        else {
          assert.equal(status, 507);
          refused++;
          assert.equal((await server.fetch(key)).status, kept.has(key) ? 200 : 404, "what was refused is not shown");
          // A repetition is refused again, so the first attempt left no trace.
          assert.equal(await put(server, key, value), 507);
          assert.equal((await server.fetch("none", { method: "DELETE" })).status, 404);
        }
      }
      assert.match(await (await server.fetch("more", { method: "PUT", body: "x".repeat(VALUE_BYTES) })).text(), /disk.*full.*make room/);
      disk.fill();
      await holds(server, kept);
      // Renewing a key with its present value needs no space.
      const [renewed, value] = [...kept][0] as [string, string];
      assert.equal(await put(server, renewed, value), 200);
      assert.equal((await fetch(server.url.replace("/metadata", "/health"))).status, 200);
      await server.kill("SIGKILL");
      await server.start();
      await holds(server, kept);
      for (const key of [...kept.keys()].slice(0, kept.size - 10)) {
        assert.equal((await server.fetch(key, { method: "DELETE" })).status, 200);
        kept.delete(key);
      }
      await holds(server, kept);
      await server.kill("SIGKILL");
      await server.start();
      await holds(server, kept);
      disk.makeRoom();
      for (let i = 0; i < 40; i++) {
        assert.equal(await put(server, `new${i}`, "y".repeat(VALUE_BYTES)), 200, `value ${i}`);
        kept.set(`new${i}`, "y".repeat(VALUE_BYTES));
      }
      await server.kill("SIGKILL");
      await server.start();
      await holds(server, kept);
    },
  );

void test("deletions free the space that values need, even if nothing else frees any", needsMounts, async () => {
  // The address file of the server takes a block of its own in addition to the segments.
  using disk = smallDisk((4 << 20) + (64 << 10));
  await using server = await startMetadataServer([], disk.folder);
  const kept = new Map<string, string>();
  const value = "v".repeat(VALUE_BYTES);
  for (let round = 0; round < 5; round++) {
    let i = 0;
    while ((await put(server, `r${round}-${i}`, value)) === 200) kept.set(`r${round}-${i++}`, value);
    assert.ok(i >= 20, `round ${round}: room for ${i}`);
    disk.fill();
    for (const key of [...kept.keys()].filter((_, index) => index % 2 === 0)) {
      assert.equal((await server.fetch(key, { method: "DELETE" })).status, 200);
      kept.delete(key);
    }
    await holds(server, kept);
  }
  await server.kill("SIGKILL");
  await server.start();
  await holds(server, kept);
});

void test("a server starts on a full disk that has none of its files yet, serves, and stores values once there is space", needsMounts, async () => {
  using disk = smallDisk(4 << 20);
  disk.fill();
  await using server = await startMetadataServer([], disk.folder);
  assert.equal(await put(server, "a", "1"), 507);
  assert.equal((await server.fetch("a")).status, 404);
  disk.makeRoom();
  for (const bound = Date.now() + 30_000; (await put(server, "a", "1")) !== 200; ) assert.ok(Date.now() < bound);
  await server.kill("SIGKILL");
  await server.start();
  assert.equal(await (await server.fetch("a")).text(), "1");
});

void test("whichever write of the server fails on the full disk, answered changes are kept and refused ones are not", needsMounts, async () => {
  using disk = smallDisk(6 << 20);
  await using server = await startMetadataServer([], disk.folder);
  const kept = new Map<string, string>();
  // The free space grows from nothing to enough for the reserve and a file, in steps smaller than any write.
  for (let room = 0, step = 0; room < 2 << 20; room += 48 << 10, step++) {
    disk.makeRoom();
    disk.fill(room);
    for (let i = 0; i < 6; i++) {
      const key = `k${(step * 7 + i) % 40}`;
      const value = `${step}-${i}-`.padEnd(VALUE_BYTES, "z");
      if (i % 3 === 2) {
        const status = (await server.fetch(key, { method: "DELETE" })).status;
        assert.equal(status, kept.delete(key) ? 200 : 404);
      } else if ((await put(server, key, value)) === 200) kept.set(key, value);
    }
    if (step % 6 === 0) {
      await server.kill("SIGKILL");
      await server.start();
    }
    await holds(server, kept);
  }
});
