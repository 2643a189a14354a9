// A full disk: changes are refused with a code of their own, reads continue, and freed space makes the master healthy again.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { openClient, startClient } from "./client.ts";
import { startMaster } from "./master.ts";

const MIB = 1024 * 1024;

void test(
  "with a full disk puts are refused and reads continue; with space again, puts are accepted and nothing was lost",
  needs("root", "mount"),
  async () => {
    const place = makeHome();
    const home = join(place, "home");
    mkdirSync(home);
    execFileSync("mount", ["-t", "tmpfs", "-o", `size=${6 * MIB}`, "tmpfs", home]);
    try {
      const ballast = join(home, "ballast");
      writeFileSync(ballast, Buffer.alloc(2 * MIB));
      await using master = await startMaster({ home, flags: ["--client_ttl=600s", "--store.suspect_after_ms=600000"] });
      const rpc = await master.rpc();
      await rpc.call("MountSegment", segmentOf(1, 1n << 30n), clientID);
      const kept: string[] = [];
      const key = (at: number) => `${at}-${"k".repeat(4000)}`;
      let refused = 0;
      for (let at = 0; refused === 0 && at < 5000; at++) {
        const begun = await rpc.call("PutStart", clientID, key(at), 10n, plain, "");
        if (begun.ok && (await rpc.call("PutEnd", clientID, { key: key(at), checksum: undefined }, 4, "")).ok) kept.push(key(at));
        if (!begun.ok) refused = begun.code;
      }
      assert.equal(refused, -1503);
      assert.ok(kept.length > 50, `${kept.length} puts before the disk was full`);
      assert.deepEqual(await rpc.call("ExistKey", kept[0] as string, ""), { ok: true, value: true });
      const health = await fetch(`${master.url}/health`);
      assert.equal(health.status, 503);
      assert.match(await health.text(), /disk of the log is full/);
      assert.match(await (await fetch(`${master.url}/metrics`)).text(), /^svc_store_log_full 1$/m);
      await until("its log says so", () =>
        /the disk of the log is full: changes are refused \(507\), reads continue; make room/.test(master.log()) ? true : undefined,
      );
      assert.equal((await fetch(`${master.url}/api/v1/remove_all?force=true`, { method: "POST" })).status, 507);
      assert.equal((await fetch(`${master.url}/query_key?key=${kept[0]}`)).status, 200);
      rmSync(ballast);
      await until("puts are taken again", async () => {
        await rpc.call("Ping", clientID);
        const begun = await rpc.call("PutStart", clientID, "after", 10n, plain, "");
        return begun.ok && (await rpc.call("PutEnd", clientID, { key: "after", checksum: undefined }, 4, "")).ok ? true : undefined;
      });
      await until("its log says that it is over", () => (/has room again: changes are taken/.test(master.log()) ? true : undefined));
      await until("the master is well", async () => ((await fetch(`${master.url}/health`)).status === 200 ? true : undefined));
      await master.kill();
      await master.start();
      const again = await master.rpc();
      await again.call("MountSegment", segmentOf(1, 1n << 30n), clientID);
      const found = await again.call("BatchExistKey", [...kept, "after"], "");
      assert.ok(found.every((outcome) => outcome.ok && outcome.value));
    } finally {
      execFileSync("umount", ["-l", home]);
      removeHome(place);
    }
  },
);

void test("a full disk locks out neither readers, nor holders after the master's restart", needs("root", "mount"), async () => {
  const place = makeHome();
  const home = join(place, "home");
  mkdirSync(home);
  execFileSync("mount", ["-t", "tmpfs", "-o", `size=${6 * MIB}`, "tmpfs", home]);
  try {
    await using master = await startMaster({ home });
    await using _holder = await startClient(master, { segmentBytes: 16 * MIB });
    const value = Buffer.alloc(100, "v");
    {
      await using writer = await openClient(master);
      for (let at = 0; at < 20; at++) await writer.put(`k${at}`, value);
    }
    execFileSync("sh", ["-c", `cat /dev/zero > ${join(home, "ballast")} 2>/dev/null || true`]);
    const rpc = await master.rpc();
    // The log first uses up the space that it allocated in advance.
    await until(
      "changes are refused",
      async () => {
        const begun = await rpc.call("PutStart", clientID, `more-${"k".repeat(4000)}-${Math.random()}`, 10n, plain, "");
        return !begun.ok && begun.code === -1503 ? true : undefined;
      },
      1,
    );
    for (const isAfterRestart of [false, true]) {
      if (isAfterRestart) {
        await master.kill();
        await master.start();
        execFileSync("sh", ["-c", `cat /dev/zero >> ${join(home, "ballast")} 2>/dev/null || true`]);
      }
      await using reader = await openClient(master);
      for (let at = 0; at < 20; at++) await until(`k${at} is read`, async () => ((await reader.get(`k${at}`))?.equals(value) ? true : undefined));
    }
    rmSync(join(home, "ballast"));
    await using last = await openClient(master);
    await until("puts are taken again", async () =>
      last.put("new", value).then(
        () => true,
        () => undefined,
      ),
    );
  } finally {
    execFileSync("umount", ["-l", home]);
    removeHome(place);
  }
});
