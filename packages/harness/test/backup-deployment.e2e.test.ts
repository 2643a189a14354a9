// A deployment loses its nodes, etcd and object storage: a backup of one node with the shared parts brings its sandboxes back.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { clusterKeys } from "@svc/contract/cluster-records.ts";
import { getSandbox } from "@svc/contract/sandbox.ts";
import { openEtcd } from "@svc/kit/etcd/client.ts";
import { Sandbox } from "e2b";
import { runBackup } from "../src/backup.ts";
import { DEPLOYMENT_KEY, startDeployment } from "../src/deployment.ts";
import { needs } from "../src/needs.ts";
import { destroyAll, type TestNode } from "../src/node.ts";
import { connectionTo } from "../src/template.ts";
import { until } from "../src/until.ts";

const given = needs("root", "runsc", "envd", "base", "etcd");

void test("nodes, etcd and object storage are lost: the records are back in etcd, the objects in storage, and a paused sandbox resumes", given, async () => {
  const parent = mkdtempSync(join(tmpdir(), "svc-backup-test-"));
  const [home, target, storage] = ["home", "backup", "storage"].map((name) => join(parent, name)) as [string, string, string];
  const objects = `file://${storage}`;
  await using deployment = await startDeployment();
  const etcd = deployment.server.endpoints.join(",");
  const keys = openEtcd({ endpoints: deployment.server.endpoints });
  let node: TestNode | undefined;
  try {
    node = await deployment.start({ runtime: "gvisor", home, flags: [`--objects.url=${objects}`] });
    const options = { ...connectionTo(node), timeoutMs: 600_000 };
    const sandbox = await Sandbox.create("base", options);
    await sandbox.commands.run("echo exported > file");
    await sandbox.pause();
    const prefix = clusterKeys("default").sandbox(sandbox.sandboxId);
    await until("its record in etcd", async () => ((await keys.get(prefix)) === undefined ? undefined : true));
    const before = (await keys.list("svc/default/")).entries.filter(({ leaseID }) => leaseID === undefined).map(({ key, value }) => [key, value]);

    const flags = [`--home=${home}`, `--etcd=${etcd}`, `--objects.url=${objects}`];
    const env = { SVC_API_KEY: DEPLOYMENT_KEY };
    const made = await runBackup(["create", target, ...flags, "--copy-objects"], undefined, env);
    assert.equal(made.code, 0, made.stderr);
    assert.match(made.stdout, new RegExp(`records of etcd ${before.length}.*\nobjects of file://.*: [1-9]\\d*\n.*not in the backup: the API key`, "s"));
    assert.equal((await runBackup(["verify", target])).code, 0);

    await node.kill("SIGKILL");
    await destroyAll(home);
    for (const lost of [home, storage]) rmSync(lost, { recursive: true });
    await deployment.server.members[0]?.wipe();
    const restored = await runBackup(["restore", target, ...flags], undefined, env);
    assert.equal(restored.code, 0, restored.stderr);
    assert.match(restored.stdout, new RegExp(`objects were missing in file://.*, and are back\n${before.length} records were written to etcd`));
    assert.deepEqual(
      (await keys.list("svc/default/")).entries.map(({ key, value }) => [key, value]),
      before,
    );
    await node.start();
    assert.equal((await node.call(getSandbox, { sandboxID: sandbox.sandboxId })).state, "paused");
    assert.equal((await (await Sandbox.connect(sandbox.sandboxId, options)).commands.run("cat file")).stdout, "exported\n");
    // A second node of the deployment is restored into an etcd that has the records.
    const other = await runBackup(["restore", target, `--home=${join(parent, "other")}`, `--etcd=${etcd}`], undefined, env);
    assert.match(other.stdout, /etcd has records of this deployment, and was not changed/);
    assert.match(other.stdout, /objects of file:\/\/.* are in the backup and were not restored: give --objects\.url/);
  } finally {
    await node?.[Symbol.asyncDispose]();
    await keys.close();
    rmSync(parent, { recursive: true, force: true });
  }
});
