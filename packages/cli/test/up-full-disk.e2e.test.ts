// The supervisor of `svc up` on a full disk: it keeps running, restarts servers, and its file lists the running ones.
import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { boundedDiskNeeds, openBoundedDisk } from "@svc/harness/bounded-disk.ts";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { isAlive } from "../src/access/up-state.ts";
import { openHome } from "./up-home.ts";

void test(
  "on a full disk a server that is killed is started again, up.json names the new one, and down stops them all",
  needs(...boundedDiskNeeds),
  async () => {
    using disk = openBoundedDisk(64);
    await using it = openHome(disk.path);
    assert.equal((await it.svc("up", "-d", "--without", "node")).code, 0);
    const up = it.state();
    for (const name of ["indexer", "metadata"]) {
      const before = it.state().servers.find((server) => server.name === name);
      assert.ok(before !== undefined);
      disk.fill();
      process.kill(before.pid, "SIGKILL");
      const after = await until(`another ${name} in up.json`, () => it.state().servers.find((server) => server.name === name && server.pid !== before.pid));
      assert.ok(isAlive(after));
      assert.equal((await fetch(`${after.url}/health`)).status, 200);
    }
    assert.equal(it.state().pid, up.pid);
    assert.ok(isAlive(up), "the supervisor lives");
    const last = it.state();
    assert.match((await it.svc("down")).stdout, /^down/);
    assert.ok(![last, ...last.servers].some(isAlive), "nothing is left");
    disk.free();
  },
);

void test(
  "up on a disk that was already full is found and stopped by down, runs the servers that can run, and starts the rest once there is space",
  needs(...boundedDiskNeeds),
  async () => {
    using disk = openBoundedDisk(64);
    await using it = openHome(disk.path);
    const flags = ["up", "-d", "--without", "node", "--store_service.global_segment_size=16mb"];
    assert.equal((await it.svc(...flags)).code, 0);
    assert.match((await it.svc("down")).stdout, /^down/);
    disk.fill();
    const again = await it.svc(...flags);
    assert.equal(again.code, 0, again.stderr);
    assert.match(again.stdout, /^metadata /m);
    assert.match(again.stderr, /store service cannot start .*\n(.*\n)*svc: the others run without it/);
    assert.equal((await fetch(`${it.server("indexer").url}/health`)).status, 200);
    disk.free();
    await until("the store service", () => it.state().servers.find(({ name }) => name === "store service"));
    rmSync(join(disk.path, "up.json"));
    assert.match((await it.svc("down")).stdout, /^down/, "found without its file, too");
    assert.equal((await it.svc("down")).stdout, `nothing is up on ${disk.path}\n`);
  },
);
