// Exports in the background: when a paused sandbox counts as exported.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Failure } from "@svc/contract/failures.ts";
import { until } from "@svc/harness/until.ts";
import { openLog } from "@svc/kit/log.ts";
import type { SandboxRecord } from "../src/records/state.ts";
import { openExports } from "../src/snapshot-transfer/exports.ts";

void test("a sandbox is reported as exported once, and only after other nodes can find it", async () => {
  const folder = mkdtempSync(join(tmpdir(), "svc-exports-"));
  const record = { sandboxID: "i1", status: { state: "paused", kept: { checkpointID: "c1" } } } as unknown as SandboxRecord;
  const happened: string[] = [];
  let isEtcdAway = true;
  const exports = await openExports({
    folder,
    stored: {
      exportSandbox: async () => {
        happened.push("stored");
        return { sentBytes: 1, keptBytes: 2, manifest: "sandboxes/i1/c1" } as never;
      },
      exportSnapshot: () => assert.fail("there is no snapshot"),
      dropSandbox: async () => undefined,
      dropSnapshot: () => assert.fail("there is no snapshot"),
    },
    registry: { get: () => record, all: () => [record].values() },
    snapshots: { find: () => undefined, list: () => [] },
    quarantine: { find: () => undefined },
    sharing: {
      async share(sandboxID, manifest) {
        happened.push(`shared ${sandboxID} as ${manifest}`);
        if (isEtcdAway) throw new Failure("ETCD_UNAVAILABLE", "etcd does not answer");
      },
      forget: async () => undefined,
    },
    catalog: undefined,
    report: (type, _subject, details) => void happened.push(`${type} ${JSON.stringify(details)}`),
    log: openLog("node", "fatal"),
  });
  try {
    await assert.rejects(exports.now("i1"), { name: "ETCD_UNAVAILABLE" });
    assert.deepEqual(happened, ["stored", "shared i1 as sandboxes/i1/c1"]);
    isEtcdAway = false;
    await until("the retry in the background", () => (happened.length >= 4 ? true : undefined));
    await exports.now("i1");
    const shared = "shared i1 as sandboxes/i1/c1";
    assert.deepEqual(happened, ["stored", shared, shared, 'sandbox.exported {"sentBytes":1,"keptBytes":2}', shared]);
  } finally {
    await exports.close();
    rmSync(folder, { recursive: true, force: true });
  }
});
