// A store master's home is backed up while clients put keys: each key that was acknowledged before is back after a restore.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { runBackup } from "@svc/harness/backup.ts";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { openClient } from "./client.ts";
import { startMaster } from "./master.ts";

const KEYS = 200;
const keysOf = async (url: string) => new Set((await (await fetch(`${url}/get_all_keys`)).text()).split("\n"));

void test(
  "keys put before a backup of a running master are back after its home is lost, and the backup is whole while more are put",
  needs("tar"),
  async () => {
    const parent = mkdtempSync(join(tmpdir(), "svc-backup-test-"));
    const [home, target] = [join(parent, "home"), join(parent, "backup")];
    try {
      await using master = await startMaster({ home, flags: ["--client_ttl=600s"] });
      await using client = await openClient(master, { segmentBytes: 64 << 20 });
      const put = async (name: string) => assert.equal(await client.put(name, Buffer.from(name)), true);
      for (let number = 0; number < KEYS; number++) await put(`before-${number}`);
      const isOver = { now: false };
      const busy = (async () => {
        for (let number = 0; !isOver.now; number++) await put(`during-${number}`);
      })();
      const made = await runBackup(["create", target, `--home=${home}`]).finally(() => {
        isOver.now = true;
      });
      await busy;
      assert.equal(made.code, 0, made.stderr);
      assert.equal((await runBackup(["verify", target])).code, 0);
      await master.kill();
      rmSync(home, { recursive: true });
      const restored = await runBackup(["restore", target, `--home=${home}`]);
      assert.equal(restored.code, 0, restored.stderr);
      await master.start();
      // The holder of the bytes returns within its time to live.
      let missing: string[] = [];
      const areBack = async () => {
        const found = await keysOf(master.url);
        missing = Array.from({ length: KEYS }, (_, number) => `before-${number}`).filter((key) => !found.has(key));
        return missing.length === 0 ? true : undefined;
      };
      await until("every key", areBack).catch((error: Error) => assert.fail(`${error.message}: ${missing.length} are missing, such as ${missing[0]}`));
      assert.doesNotMatch(master.log(), /damaged/);
    } finally {
      rmSync(parent, { recursive: true, force: true });
    }
  },
);
