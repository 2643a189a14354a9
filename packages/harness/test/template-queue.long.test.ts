// A build whose start command ended long before it was ready: the build waits 30 s, too long for an ordinary test.
import assert from "node:assert/strict";
import { test } from "node:test";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";
import { ended, startBuild } from "../src/template.ts";

void test("a build fails with exit code and output of a start command that ended 30 s before", needs("root", "runsc", "envd", "base"), async () => {
  await using node = await startNode({ runtime: "gvisor" });
  // The wait includes these 30 s, so the usual limit is applied several times.
  const ids = await startBuild(node, "ends", { fromTemplate: "base", startCmd: "echo through", readyCmd: "false" });
  let through: Awaited<ReturnType<typeof ended>> | undefined;
  for (let tries = 0; through === undefined && tries < 5; tries++) through = await ended(node, ids).catch(() => undefined);
  assert.match(
    through?.reason?.message ?? "",
    /^the start command ended with exit code 0 and 30 s later the ready command had not succeeded: false; its last words: through$/,
  );
});
