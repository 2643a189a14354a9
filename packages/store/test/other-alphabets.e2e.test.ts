// Homes and folders with names that are not ASCII: everything is stored in them, and nothing next to them.
import assert from "node:assert/strict";
import { mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { openClient } from "./client.ts";
import { startMaster } from "./master.ts";
import { bytesOf, filesIn, makeFolder } from "./ssd.ts";

const NAME = "hömé 日本";

void test("a master's log and an owner's files lie in folders of any name, and survive a kill", async () => {
  await using parent = makeFolder();
  const place = join(parent.path, NAME);
  const [home, ssdFolder, root] = ["master", "ssd", "shared"].map((name) => join(place, name)) as [string, string, string];
  for (const folder of [home, root]) mkdirSync(folder, { recursive: true });
  const bytes = bytesOf("one", 200_000);
  {
    await using master = await startMaster({ home, flags: ["--enable_offload=true", `--root_fs_dir=${root}`] });
    await using client = await openClient(master, { segmentBytes: 2 ** 24, ssdFolder });
    assert.equal(await client.put("schlüssel", bytes), true);
    while (filesIn(ssdFolder).length === 0) await new Promise((resolve) => setTimeout(resolve, 10));
    await master.kill();
    await master.start();
    assert.deepEqual(await client.get("schlüssel"), bytes);
  }
  assert.deepEqual(readdirSync(parent.path), [NAME]);
  assert.ok(readdirSync(join(home, "store")).some((name) => /^log-.*\.log$/.test(name)));
});
