// What is quarantined can be deleted by its own verb: its parts go, doctor forgets it, and its name is free again.
import assert from "node:assert/strict";
import { copyFileSync, existsSync, readdirSync, renameSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { createSnapshot, getSnapshot, listSnapshots, pauseSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox, deleteSandbox, getSandbox } from "@svc/contract/sandbox.ts";
import { deleteTemplate, listTemplates } from "@svc/contract/template.ts";
import { damage, diagnosed } from "../src/damage.ts";
import { makeHome, removeHome } from "../src/home.ts";
import { leftovers } from "../src/leftovers.ts";
import { needs } from "../src/needs.ts";
import { destroyAll, startNode, type TestNode } from "../src/node.ts";
import { ended, startBuild } from "../src/template.ts";
import { until } from "../src/until.ts";

const nothing = { directories: [], netns: [], links: [], cgroups: [], mounts: [], processes: [] };

async function built(node: TestNode, name: string): Promise<{ templateID: string; buildID: string }> {
  const ids = await startBuild(node, name, { fromTemplate: "base", steps: [{ type: "RUN", args: [`echo ${name} > built`] }] });
  assert.equal((await ended(node, ids)).reason?.message, undefined);
  return ids;
}

const create = async (node: TestNode) => (await node.call(createSandbox, { templateID: "base", timeout: 3600 })).sandboxID;

void describe("deleting what is quarantined", needs("root", "runsc", "runc", "envd", "base"), () => {
  void test("sandboxes, snapshots, templates and builds whose records cannot be read are deleted as any other, with all that only they used", async () => {
    await using node = await startNode({ runtime: "gvisor" });
    const [running, paused] = [await create(node), await create(node)];
    await node.call(pauseSandbox, { sandboxID: paused });
    const { snapshotID } = await node.call(createSnapshot, { sandboxID: running, name: "kept" });
    const other = await node.call(createSnapshot, { sandboxID: running });
    const tagged = await built(node, "tagged");
    await built(node, "named");
    await node.kill("SIGKILL");
    damage(node.home, [
      ["sandboxes.db", "sandboxes", "sandbox_id", "record", running],
      ["sandboxes.db", "sandboxes", "sandbox_id", "record", paused],
      ["sandboxes.db", "snapshots", "snapshot_id", "snapshot", snapshotID],
      ["templates.db", "builds", "build_id", "record", tagged.buildID],
      ["templates.db", "templates", "name", "record", "named"],
    ]);
    await node.start();
    const said = await diagnosed(node.home);
    assert.equal(said.length, 5, said.join("\n"));
    assert.ok(
      said.some((line) => line.startsWith(`snapshot ${snapshotID}: `) && line.includes("kept:default")),
      said.join("\n"),
    );
    await assert.rejects(node.call(getSnapshot, { snapshotID: "kept" }), { name: "QUARANTINED" });
    await assert.rejects(node.call(createSandbox, { templateID: "kept" }), { name: "QUARANTINED" });

    for (const sandboxID of [running, paused]) {
      await node.call(deleteSandbox, { sandboxID });
      await assert.rejects(node.call(getSandbox, { sandboxID }), { name: "SANDBOX_NOT_FOUND" });
    }
    for (const templateID of ["kept", tagged.buildID, "named"]) {
      await node.call(deleteTemplate, { templateID });
      await assert.rejects(node.call(createSandbox, { templateID }), { name: "TEMPLATE_NOT_FOUND" });
    }
    await until("doctor to forget them", async () => ((await diagnosed(node.home)).length === 0 ? true : undefined));
    assert.deepEqual(leftovers(node.home), nothing);
    // Of three checkpoints one is still somebody's.
    assert.equal(readdirSync(join(node.home, "snapshots")).length, 1);
    await node.restart("SIGKILL");
    assert.deepEqual(await diagnosed(node.home), []);
    assert.deepEqual(
      (await node.call(listSnapshots, {})).map((each) => each.snapshotID),
      [other.snapshotID],
    );
    assert.deepEqual(
      (await node.call(listTemplates, {})).flatMap(({ names }) => names).filter((name) => name === "named" || name === "tagged"),
      ["tagged"],
    );
    await built(node, "named");
    const again = await node.call(createSandbox, { templateID: other.snapshotID });
    await node.call(createSnapshot, { sandboxID: again.sandboxID, name: "kept" });
  });

  void test("a sandbox whose driver is gone is ended without it, and so is a paused one; a snapshot that needs it is deleted", async () => {
    const home = makeHome();
    const runsc = join(home, "runsc");
    copyFileSync(process.env["SVC_RUNSC"] ?? "", runsc);
    const env = { SVC_RUNSC: runsc };
    {
      await using node = await startNode({ home, runtime: "gvisor", env });
      const [running, paused] = [await create(node), await create(node)];
      const { snapshotID } = await node.call(createSnapshot, { sandboxID: running });
      await node.call(pauseSandbox, { sandboxID: paused });
      await node.kill("SIGKILL");
      renameSync(runsc, `${runsc}.away`);
      await node.start({ flags: ["--runtime=runc"] });
      assert.equal((await diagnosed(home)).length, 4);
      for (const sandboxID of [running, paused]) await node.call(deleteSandbox, { sandboxID });
      await node.call(deleteTemplate, { templateID: snapshotID });
      assert.deepEqual(leftovers(home), nothing);
      assert.deepEqual(readdirSync(join(home, "snapshots")), []);
      await until("doctor to name the driver alone", async () => ((await diagnosed(home)).join().startsWith("driver gvisor") ? true : undefined));
    }
    removeHome(home);
  });

  void test("--destroy-all ends what is quarantined, too, and leaves nothing to name", async () => {
    const home = makeHome();
    {
      await using node = await startNode({ home, runtime: "gvisor" });
      const [running, paused] = [await create(node), await create(node)];
      await node.call(pauseSandbox, { sandboxID: paused });
      await node.kill("SIGKILL");
      damage(home, [
        ["sandboxes.db", "sandboxes", "sandbox_id", "record", running],
        ["sandboxes.db", "sandboxes", "sandbox_id", "record", paused],
      ]);
      await node.start();
      await node.kill("SIGKILL");
      await destroyAll(home);
      assert.deepEqual(leftovers(home), nothing);
      assert.equal(existsSync(join(home, "quarantine.json")), false);
      assert.deepEqual(readdirSync(join(home, "snapshots")), []);
    }
    removeHome(home);
  });
});
