// A sandbox that cannot be thawed after a failed pause: it never counts as running, and runs again as soon as possible.
import assert from "node:assert/strict";
import { renameSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { pauseSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox, deleteSandbox, setSandboxTimeout } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";
import { connectionTo } from "../src/template.ts";
import { until } from "../src/until.ts";

void test(
  "a sandbox that no thaw reaches after its pause failed answers that it changes its state, and runs again as soon as one does",
  needs("root", "runsc", "envd", "base"),
  async () => {
    await using node = await startNode({ runtime: "gvisor" });
    const { sandboxID } = await node.call(createSandbox, { templateID: "base", timeout: 3600 });
    const sandbox = await Sandbox.connect(sandboxID, connectionTo(node));
    await sandbox.commands.run("echo kept > kept");
    // The socket of the kernel inside, which freezes, checkpoints and thaws need.
    const socket = join(node.home, `run/gvisor/state/runsc-${sandboxID}.sock`);
    renameSync(socket, `${socket}.away`);
    await assert.rejects(node.call(pauseSandbox, { sandboxID }), { name: "INTERNAL" });
    assert.match(node.log(), /could not be thawed; it is frozen, retrying/);
    await assert.rejects(node.call(pauseSandbox, { sandboxID }), { name: "SANDBOX_CHANGING_STATE" });
    await assert.rejects(node.call(setSandboxTimeout, { sandboxID, timeout: 60 }), { name: "SANDBOX_CHANGING_STATE" });
    renameSync(`${socket}.away`, socket);
    await until("the sandbox to run again", () =>
      node.call(setSandboxTimeout, { sandboxID, timeout: 3600 }).then(
        () => true,
        () => undefined,
      ),
    );
    assert.equal((await sandbox.commands.run("cat kept")).stdout, "kept\n");
    await node.call(pauseSandbox, { sandboxID });
    await node.call(deleteSandbox, { sandboxID });
  },
);
