// SIGKILL of the node during a build: no orphan, and the build reports its outcome.
import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createSandbox, deleteSandbox } from "@svc/contract/sandbox.ts";
import { getTemplate } from "@svc/contract/template.ts";
import { getBuildStatus } from "@svc/contract/template-build.ts";
import { assertNothingBut, killDuring } from "../src/crash.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { ended, startBuild } from "../src/template.ts";

const steps = [
  { type: "RUN", args: ["date +%N > /tmp/one"] },
  { type: "RUN", args: ["date +%N > /tmp/two"] },
];

/** The stages have the names of the node's debug log. */
export function killedBuildSuite(stages: readonly string[]): void {
  void test(
    "a build that kill -9 interrupted says where it was, leaves nothing behind, and can be built again",
    needs("root", "runsc", "envd", "base"),
    async () => {
      await using node = await startNode({ runtime: "gvisor", flags: ["--log-level=debug"] });
      for (const stage of stages) {
        const input = { fromTemplate: "base", steps, startCmd: "touch /tmp/up", readyCmd: "test -e /tmp/up", force: true };
        const cutOff = async () => {
          await killDuring(node, stage, 0, () => startBuild(node, "cut", input));
          await node.start();
          // The kill may have come before the answer.
          const { templateID, builds } = await node.call(getTemplate, { templateID: "cut" });
          return node.call(getBuildStatus, { templateID, buildID: builds[0]?.buildID ?? "" });
        };
        let cut = await cutOff();
        // A build that finished before the kill is repeated.
        for (let again = 0; again < 5 && cut.status === "ready"; again++) cut = await cutOff();
        const { status, reason } = cut;
        assert.equal(status, "error", stage);
        assert.match(reason?.message ?? "", /the node ended while this build was at (its base|step [12]|its end)/, stage);
        await assertNothingBut(node, [], stage);
        assert.deepEqual(halfMade(node), [], stage);
      }
      const whole = await ended(node, await startBuild(node, "cut", { fromTemplate: "base", steps }));
      assert.equal(whole.status, "ready", whole.reason?.message);
      const { sandboxID } = await node.call(createSandbox, { templateID: "cut" });
      await node.restart("SIGKILL");
      await node.call(deleteSandbox, { sandboxID });
      await assertNothingBut(node, [], "a sandbox of the template");
    },
  );
}

/** Returns layers, fetches and checkpoints without a record. */
function halfMade({ home }: TestNode): string[] {
  const names = (folder: string) => (existsSync(join(home, folder)) ? readdirSync(join(home, folder)) : []);
  return [
    ...names("layers").filter((name) => name.endsWith(".part")),
    ...names("oci"),
    ...names("snapshots"),
    ...names("files").filter((name) => name.endsWith(".part")),
  ];
}
