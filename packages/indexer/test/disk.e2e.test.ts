// Tests a full disk: registrations that cannot be stored are refused with 507, everything else works, and all works again once there is
// space.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { closeSync, mkdirSync, openSync, readdirSync, rmSync, statfsSync, writeSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { startIndexer, type TestIndexer } from "./indexer.ts";
import { needsPublishers, startPublisher } from "./publisher.ts";

const record = { endpoint: "tcp://127.0.0.1:9", type: "vLLM", modelname: "m", block_size: 4, dp_rank: 0 };
const PAGE = 4096;

/** A disk of this size in a folder of its own, removed at the end. */
class SmallDisk {
  readonly #folder = makeHome();
  readonly home = join(this.#folder, "home");

  constructor(size: string) {
    mkdirSync(this.home);
    execFileSync("mount", ["-t", "tmpfs", "-o", `size=${size}`, "tmpfs", this.home]);
  }

  get #filler(): string {
    return join(this.home, "filler");
  }

  /** Leaves this much space free. */
  fill(freeBytes = 0): void {
    rmSync(this.#filler, { force: true });
    const file = openSync(this.#filler, "w");
    const { bavail, bsize } = statfsSync(this.home);
    const page = Buffer.alloc(PAGE);
    try {
      let left = freeBytes === 0 ? Number.POSITIVE_INFINITY : bavail * bsize - freeBytes;
      // The file system may return the space of a removed file with a delay.
      for (let refused = 0; left >= PAGE && refused < 20; left -= PAGE) {
        try {
          writeSync(file, page);
        } catch (error) {
          assert.equal((error as NodeJS.ErrnoException).code, "ENOSPC");
          refused++;
          Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10);
        }
      }
    } finally {
      closeSync(file);
    }
  }

  free(): void {
    rmSync(this.#filler, { force: true });
  }

  [Symbol.dispose](): void {
    execFileSync("umount", ["-l", this.home]);
    removeHome(this.#folder);
  }
}

function needsMounts(): { skip: string | false } {
  return { skip: process.getuid?.() === 0 ? false : "needs root, to mount a small disk" };
}
const instances = async (indexer: TestIndexer): Promise<string[]> => (await indexer.services()).map(({ instance_id }) => instance_id).sort();

void test(
  "registrations are refused with 507 on a full disk, whichever of their writes fails; after kill -9 exactly those answered 200 are there",
  needsMounts(),
  async () => {
    using disk = new SmallDisk("2m");
    await using indexer = await startIndexer([], { home: disk.home });
    const acknowledged: string[] = [];
    const seen = new Set<number>();
    for (let attempt = 0; attempt < 24; attempt++) {
      // The free space varies from no page to enough for every write.
      disk.fill((attempt % 4) * PAGE);
      const instance_id = `e${attempt}`;
      const { status, body } = await indexer.post("/register", { ...record, instance_id });
      seen.add(status);
      if (status === 200) acknowledged.push(instance_id);
      else assert.deepEqual([status, (body as { reason: string }).reason], [507, "disk_full"]);
      if (status === 507) assert.match((body as { error: string }).error, /the registration e\d+\|default\|0 cannot be stored: the disk is full/);
      assert.deepEqual(await instances(indexer), [...acknowledged].sort());
    }
    assert.deepEqual([...seen].sort(), [200, 507]);
    disk.fill();
    await indexer.kill("SIGKILL");
    // The indexer starts on the full disk.
    await indexer.start();
    assert.deepEqual(await instances(indexer), [...acknowledged].sort());
    // Removing a registration needs no space.
    const gone = acknowledged.shift() as string;
    assert.equal((await indexer.post("/unregister", { instance_id: gone, dp_rank: 0 })).status, 200);
    // The space of its file is free now, so it is filled as well.
    disk.fill();
    assert.equal((await indexer.post("/register", { ...record, instance_id: "late" })).status, 507);
    disk.free();
    await indexer.register({ ...record, instance_id: "late" });
    await indexer.kill("SIGKILL");
    await indexer.start();
    assert.deepEqual(await instances(indexer), [...acknowledged, "late"].sort());
  },
);

void test("an indexer that first starts on a full disk serves, and stores registrations once there is space", needsMounts(), async () => {
  using disk = new SmallDisk("1m");
  disk.fill();
  await using indexer = await startIndexer([], { home: disk.home });
  assert.equal((await indexer.post("/register", { ...record, instance_id: "e" })).status, 507);
  assert.deepEqual(await indexer.query({ model: "m", block_size: 4, token_ids: [1, 2, 3, 4] }), {});
  disk.free();
  await indexer.register({ ...record, instance_id: "e" });
});

void test("a snapshot without disk space is reported by the doctor, its partial file is removed, and the former one stays until there is space", {
  skip: needsMounts().skip || needsPublishers().skip,
}, async () => {
  using disk = new SmallDisk("4m");
  await using publisher = await startPublisher({ rank: 0 });
  await using indexer = await startIndexer(["--indexer.snapshot_interval_seconds=1"], { home: disk.home });
  await indexer.register({ ...record, endpoint: publisher.endpoint, replay_endpoint: publisher.replayEndpoint, instance_id: "e" });
  const store = async (n: number): Promise<void> => {
    await publisher.send({ events: [{ kind: "stored", block_hashes: [n], parent_block_hash: null, token_ids: [n, n, n, n], block_size: 4 }] });
  };
  const files = () => readdirSync(join(disk.home, "indexer")).sort();
  await store(1);
  await indexer.until(
    "a snapshot",
    async () => files(),
    (names) => names.includes("index.snapshot"),
  );
  disk.fill();
  await store(2);
  await indexer.until(
    "the doctor names it",
    () => indexer.doctor(),
    (says) => /the snapshot cannot be stored: the disk is full/.test(says),
  );
  await indexer.until(
    "its rest is removed",
    async () => files(),
    (names) => !names.some((name) => name.endsWith(".new")),
  );
  assert.ok(files().includes("index.snapshot"));
  const download = await fetch(`${indexer.url}/snapshot`);
  assert.equal(download.status, 507);
  assert.equal((await indexer.query({ model: "m", block_size: 4, token_ids: [2, 2, 2, 2] }))["e"]?.longest_matched, 4);
  disk.free();
  await indexer.until(
    "the doctor is content",
    () => indexer.doctor(),
    (says) => says === "",
  );
  await publisher.kill();
  await indexer.kill("SIGKILL");
  await indexer.start();
  assert.equal((await indexer.query({ model: "m", block_size: 4, token_ids: [2, 2, 2, 2] }))["e"]?.longest_matched, 4);
});
