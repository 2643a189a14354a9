// What a home holds and cannot be used as things are: everything else starts, it is named with its reason, and it comes back.
import assert from "node:assert/strict";
import { copyFileSync, readdirSync, readFileSync, renameSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, test } from "node:test";
import { createSnapshot, listSnapshots, pauseSandbox, resumeSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox, deleteSandbox, getSandbox, listSandboxes } from "@svc/contract/sandbox.ts";
import { deleteTemplate, listTemplates } from "@svc/contract/template.ts";
import { Sandbox } from "e2b";
import { damage, diagnosed } from "../src/damage.ts";
import { makeHome, removeHome } from "../src/home.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { connectionTo, ended, startBuild } from "../src/template.ts";
import { until } from "../src/until.ts";

async function say(node: TestNode, sandboxID: string, command: string): Promise<string> {
  const sandbox = await Sandbox.connect(sandboxID, connectionTo(node));
  return (await sandbox.commands.run(command)).stdout;
}

const paused = (node: TestNode, sandboxID: string) => node.call(pauseSandbox, { sandboxID });

void describe("a node that starts over what it cannot use", needs("root", "runsc", "runc", "envd", "base"), () => {
  void test("a driver that is gone keeps nothing else from starting; what needs it is named, and goes on when it is back", async () => {
    const home = makeHome();
    const runsc = join(home, "runsc");
    copyFileSync(process.env["SVC_RUNSC"] ?? "", runsc);
    const env = { SVC_RUNSC: runsc };
    const kept = { name: "kept", running: "", paused: "", snapshotID: "" };
    {
      await using first = await startNode({ home, runtime: "gvisor", env });
      const [running, sleeping] = await Promise.all([0, 1].map(() => first.call(createSandbox, { templateID: "base", timeout: 3600 })));
      assert.ok(running !== undefined && sleeping !== undefined);
      for (const { sandboxID } of [running, sleeping]) await say(first, sandboxID, "echo kept > kept");
      const { snapshotID } = await first.call(createSnapshot, { sandboxID: running.sandboxID });
      await paused(first, sleeping.sandboxID);
      Object.assign(kept, { running: running.sandboxID, paused: sleeping.sandboxID, snapshotID });
      await first.kill("SIGKILL");
      renameSync(runsc, `${runsc}.away`);
      await using node = await startNode({ home, runtime: "runc", env });
      const { sandboxID } = await node.call(createSandbox, { templateID: "base" });
      assert.equal(await say(node, sandboxID, "echo fine"), "fine\n");
      assert.deepEqual(
        (await node.call(listSandboxes, { state: "paused" })).map((each) => each.sandboxID),
        [kept.paused],
      );
      await assert.rejects(node.call(getSandbox, { sandboxID: kept.running }), { name: "QUARANTINED", message: /gvisor/ });
      await assert.rejects(node.call(resumeSandbox, { sandboxID: kept.paused }), { name: "QUARANTINED", message: /gvisor/ });
      await assert.rejects(node.call(createSandbox, { templateID: kept.snapshotID }), { name: "QUARANTINED", message: /gvisor/ });
      const said = await diagnosed(home);
      for (const name of ["driver gvisor", `sandbox ${kept.running}`, `sandbox ${kept.paused}`, `snapshot ${kept.snapshotID}`]) {
        assert.ok(
          said.some((line) => line.startsWith(`${name}: quarantined: `) && line.includes("gvisor")),
          `${name}: ${said.join("\n")}`,
        );
        assert.ok(node.log().includes(`${name} is quarantined`), name);
      }
      // A restart over it loses nothing either.
      await node.restart("SIGKILL");
      renameSync(`${runsc}.away`, runsc);
      await until("the driver to be taken up", async () => (await node.call(getSandbox, { sandboxID: kept.running }).catch(() => undefined)) ?? undefined);
      assert.equal(await say(node, kept.running, "cat kept"), "kept\n");
      await until("the paused one to be usable", () => node.call(resumeSandbox, { sandboxID: kept.paused, timeout: 600 }).catch(() => undefined));
      assert.equal(await say(node, kept.paused, "cat kept"), "kept\n");
      const copy = await node.call(createSandbox, { templateID: kept.snapshotID });
      assert.equal(await say(node, copy.sandboxID, "cat kept"), "kept\n");
      for (const each of [copy.sandboxID, kept.running, kept.paused, sandboxID]) await node.call(deleteSandbox, { sandboxID: each });
      await node.call(deleteTemplate, { templateID: kept.snapshotID });
    }
    removeHome(home);
  });

  void test("a record, a snapshot, a template or a build that cannot be read is named; nothing it may refer to is removed, and it comes back whole", async () => {
    await using node = await startNode({ runtime: "gvisor" });
    const [bad, good] = await Promise.all([0, 1].map(() => node.call(createSandbox, { templateID: "base", timeout: 3600 })));
    assert.ok(bad !== undefined && good !== undefined);
    for (const { sandboxID } of [bad, good]) {
      await say(node, sandboxID, "echo kept > kept");
      await paused(node, sandboxID);
    }
    const source = await node.call(createSandbox, { templateID: "base", timeout: 3600 });
    const [lost, found] = [await node.call(createSnapshot, { sandboxID: source.sandboxID }), await node.call(createSnapshot, { sandboxID: source.sandboxID })];
    const built = await startBuild(node, "built", { fromTemplate: "base", steps: [{ type: "RUN", args: ["echo built > built"] }] });
    assert.equal((await ended(node, built)).reason?.message, undefined);
    const other = await startBuild(node, "other", { fromTemplate: "base", steps: [{ type: "RUN", args: ["echo other > other"] }] });
    assert.equal((await ended(node, other)).reason?.message, undefined);
    await node.kill("SIGKILL");
    const before = damage(node.home, [
      ["sandboxes.db", "sandboxes", "sandbox_id", "record", bad.sandboxID],
      ["sandboxes.db", "snapshots", "snapshot_id", "snapshot", lost.snapshotID],
      ["templates.db", "builds", "build_id", "record", built.buildID],
      ["templates.db", "templates", "name", "record", "other"],
    ]);
    await node.start();
    await node.restart("SIGTERM");
    const said = await diagnosed(node.home);
    for (const name of [`sandbox ${bad.sandboxID}`, `snapshot ${lost.snapshotID}`, `build ${built.buildID}`, "template other"]) {
      assert.ok(
        said.some((line) => line.startsWith(`${name}: `)),
        `${name}: ${said.join("\n")}`,
      );
    }
    await assert.rejects(node.call(getSandbox, { sandboxID: bad.sandboxID }), { name: "QUARANTINED" });
    await assert.rejects(node.call(createSandbox, { templateID: lost.snapshotID }), { name: "QUARANTINED" });
    await assert.rejects(node.call(createSandbox, { templateID: "built" }), { name: "QUARANTINED" });
    await assert.rejects(node.call(createSandbox, { templateID: "other" }), { name: "QUARANTINED" });
    await node.call(resumeSandbox, { sandboxID: good.sandboxID, timeout: 600 });
    assert.equal(await say(node, good.sandboxID, "cat kept"), "kept\n");
    assert.deepEqual(
      (await node.call(listSnapshots, {})).map(({ snapshotID }) => snapshotID),
      [found.snapshotID],
    );
    await node.call(listTemplates, {});
    await node.kill("SIGTERM");
    for (const undo of before) undo();
    await node.start();
    await node.call(resumeSandbox, { sandboxID: bad.sandboxID, timeout: 600 });
    assert.equal(await say(node, bad.sandboxID, "cat kept"), "kept\n");
    for (const templateID of [lost.snapshotID, "other"]) await node.call(createSandbox, { templateID });
    const again = await node.call(createSandbox, { templateID: "built" });
    assert.equal(await say(node, again.sandboxID, "cat built"), "built\n");
  });

  void test("a snapshot whose files are gone is named, and can be used as soon as they are back", async () => {
    await using node = await startNode({ runtime: "gvisor" });
    const { sandboxID } = await node.call(createSandbox, { templateID: "base", timeout: 3600 });
    const { snapshotID } = await node.call(createSnapshot, { sandboxID });
    const folder = join(node.home, "snapshots");
    const [checkpointID = ""] = readdirSync(folder);
    renameSync(join(folder, checkpointID), join(node.home, "elsewhere"));
    await node.restart("SIGKILL");
    assert.match(node.log(), new RegExp(`snapshot ${snapshotID} is quarantined: checkpoint ${checkpointID} is not on disk`));
    await assert.rejects(node.call(createSandbox, { templateID: snapshotID }), { name: "SNAPSHOT_DAMAGED" });
    renameSync(join(node.home, "elsewhere"), join(folder, checkpointID));
    await until("the snapshot to be taken up", () => (node.log().includes(`snapshot ${snapshotID} is no longer quarantined`) ? true : undefined));
    await node.call(createSandbox, { templateID: snapshotID });
  });

  void test("a home that a newer version wrote is refused by its file's name, and stays as it is", async () => {
    const home = makeHome();
    {
      await using node = await startNode({ home, runtime: "gvisor" });
      await node.kill("SIGTERM");
      for (const name of ["sandboxes.db", "templates.db", "events.db"]) {
        const path = join(home, name);
        const version = withVersion(path, 99);
        const before = readFileSync(path);
        await assert.rejects(node.start(), new RegExp(`${name.replace(".", "\\.")} was written by a newer version of svc .*schema is 99`), name);
        assert.deepEqual(readFileSync(path), before, name);
        withVersion(path, version);
      }
      await node.start();
    }
    removeHome(home);
  });
});

/** The version that was there. */
function withVersion(path: string, version: number): number {
  const db = new DatabaseSync(path);
  const before = Number(db.prepare("PRAGMA user_version").get()?.["user_version"]);
  db.exec(`PRAGMA user_version = ${version}`);
  db.close();
  return before;
}
