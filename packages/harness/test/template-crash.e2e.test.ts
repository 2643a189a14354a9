// The end of a node during a build; template-crash.long.test.ts has every stage.
import assert from "node:assert/strict";
import { test } from "node:test";
import { assertNothingBut, reached } from "../src/crash.ts";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";
import { ended, startBuild } from "../src/template.ts";
import { killedBuildSuite } from "./template-crash.suite.ts";

const steps = [
  { type: "RUN", args: ["date +%N > /tmp/one"] },
  { type: "RUN", args: ["date +%N > /tmp/two"] },
];

killedBuildSuite(["build layer", "build checkpoint"]);

void test("a clean stop puts builds back into the queue; they continue when the node is up again", needs("root", "runsc", "envd", "base"), async () => {
  await using node = await startNode({ runtime: "gvisor", flags: ["--log-level=debug"] });
  const builds: { templateID: string; buildID: string }[] = [];
  await reached(node, "build 2", async () => {
    builds.push(await startBuild(node, "first", { fromTemplate: "base", steps }));
    builds.push(await startBuild(node, "second", { fromTemplate: "base", steps }));
  });
  await node.restart("SIGTERM");
  for (const ids of builds) assert.equal((await ended(node, ids)).status, "ready");
  await assertNothingBut(node, [], "the builds");
});
