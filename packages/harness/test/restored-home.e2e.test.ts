// A backup that is started next to its original home: it ends sandboxes that do not run here, and touches nothing of the original.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { pauseSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox, getSandbox } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { makeHome, removeHome } from "../src/home.ts";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";

void test(
  "a backup started beside its living home leaves that home's sandboxes as they are, and brings the paused ones back",
  needs("root", "envd", "base", "runsc"),
  async () => {
    await using node = await startNode({ runtime: "gvisor" });
    const connection = { apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey };
    const running = await Sandbox.create("base", { ...connection, timeoutMs: 3_000_000 });
    const paused = await node.call(createSandbox, { templateID: "base" });
    await running.commands.run("echo kept > kept");
    await node.call(pauseSandbox, { sandboxID: paused.sandboxID });
    await node.kill("SIGTERM");
    const copy = makeHome();
    const excluded = ["./sandboxes", "./logs", "./reserve"].map((path) => `--exclude=${path}`);
    // The copy includes run/, as a plain copy of the folder would.
    execFileSync("sh", ["-c", 'tar -C "$1" "$3" "$4" "$5" -cf - . | tar -C "$2" -xf -', "sh", node.home, copy, ...excluded]);
    await node.start();
    const before = readdirSync(join(node.home, "sandboxes"));
    {
      await using restored = await startNode({ runtime: "gvisor", home: copy });
      assert.deepEqual(await restored.call(getSandbox, { sandboxID: running.sandboxId }).catch((error: Error) => error.name), "SANDBOX_NOT_FOUND");
      assert.equal((await restored.call(getSandbox, { sandboxID: paused.sandboxID })).state, "paused");
    }
    removeHome(copy);
    assert.deepEqual(readdirSync(join(node.home, "sandboxes")), before);
    assert.equal((await running.commands.run("cat kept")).stdout, "kept\n");
  },
);
