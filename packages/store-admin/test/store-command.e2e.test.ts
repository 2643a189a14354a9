// `svc store devices` and `migrations` for users: they find this machine's own admin server, and name what does not exist.
import assert from "node:assert/strict";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { runStore } from "@svc/harness/store-command.ts";
import { startCluster } from "./cluster.ts";
import { DEVICES } from "./cold.ts";
import { makeFolder } from "./cold-storage.ts";

void test("the admin server of a home is found wherever it listens, and a device is created only if its owner and folder exist", async () => {
  await using folder = makeFolder();
  await using cluster = await startCluster();
  await cluster.addService("first");
  const { home } = cluster.admin;
  const create = (id: string, ...words: string[]) => runStore(home, ["devices", "create", id, "--path", folder.path, ...words]);
  assert.deepEqual(JSON.parse((await runStore(home, ["devices", "--output", "json"])).stdout.toString()), []);
  assert.deepEqual(JSON.parse((await runStore(home, ["migrations", "--output", "json"])).stdout.toString()), []);
  const file = join(folder.path, "file");
  writeFileSync(file, "x");
  for (const [outcome, says] of [
    [await create("cold-1", "--owner", "frist"), /400: live runtime frist not found; live ones: first \(svc store clients/],
    [await runStore(home, ["devices", "create", "cold-1", "--owner", "first", "--path", "/there/is/none"]), /400: expected a folder .*got \/there\/is\/none/],
    [
      await runStore(home, ["devices", "create", "cold-1", "--owner", "first", "--path", file, "--capacity", "1000"]),
      /400: expected a folder .*which is not a folder/,
    ],
    [await runStore(home, ["devices", "create", "cold-1", "--path", folder.path]), /--owner: expected a value, got nothing; svc store devices --help/],
  ] as const) {
    assert.notEqual(outcome.code, 0);
    assert.match(outcome.stderr, says);
  }
  assert.deepEqual((await cluster.ask("GET", DEVICES)).body.devices, [], "a refusal changes nothing");
  assert.equal((await create("cold-1", "--owner", "first")).code, 0);
  // With --no-check the owner may come later.
  assert.equal((await create("cold-2", "--owner", "later", "--no-check")).code, 0);
  assert.equal((await cluster.ask("GET", DEVICES)).body.devices.length, 2);
  await cluster.admin.kill("SIGTERM");
  assert.equal(existsSync(join(home, "store-admin", "address.json")), false);
});
