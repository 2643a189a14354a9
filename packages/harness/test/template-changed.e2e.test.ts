// A template whose files change underneath a paused sandbox and a snapshot: both refuse to continue with a mixture.
import assert from "node:assert/strict";
import { cpSync, mkdirSync, readdirSync, readFileSync, realpathSync, renameSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createSnapshot, pauseSandbox, resumeSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox } from "@svc/contract/sandbox.ts";
import { makeHome, removeHome } from "../src/home.ts";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";

void test(
  "a paused sandbox whose template's files changed does not resume with a mixture: it says which folder, and goes on when they are back",
  needs("root", "runsc", "envd", "base"),
  async () => {
    const home = makeHome();
    const templates = join(home, "own-templates");
    mkdirSync(templates);
    // The smallest template of set-up, which mostly contains the host's own programs.
    const source = realpathSync(join(process.env["SVC_TEMPLATES_DIR"] ?? "", "host"));
    cpSync(source, join(templates, "host"), { recursive: true, verbatimSymlinks: true, preserveTimestamps: true });
    const changed = join(templates, "host/rootfs/etc/changed-later");
    writeFileSync(changed, "before");
    const then = new Date("2026-01-01");
    utimesSync(changed, then, then);
    {
      await using node = await startNode({ home, runtime: "gvisor", env: { SVC_TEMPLATES_DIR: templates } });
      const { sandboxID } = await node.call(createSandbox, { templateID: "host", timeout: 3600 });
      const { snapshotID } = await node.call(createSnapshot, { sandboxID });
      await node.call(pauseSandbox, { sandboxID });
      // The file is replaced by a new one, as package managers do.
      writeFileSync(`${changed}.new`, "after!");
      renameSync(`${changed}.new`, changed);
      await node.restart("SIGTERM");
      const refusal = { name: "SNAPSHOT_DAMAGED", message: /template's files at .*host\/rootfs have changed since this checkpoint was made/ } as const;
      await assert.rejects(node.call(resumeSandbox, { sandboxID, timeout: 600 }), refusal);
      await assert.rejects(node.call(createSandbox, { templateID: snapshotID }), refusal);
      assert.equal(readdirSync(join(home, "snapshots")).length, 2);
      writeFileSync(changed, "before");
      utimesSync(changed, then, then);
      assert.equal(readFileSync(changed, "utf8"), "before");
      await node.restart("SIGTERM");
      await node.call(resumeSandbox, { sandboxID, timeout: 600 });
      await node.call(createSandbox, { templateID: snapshotID });
    }
    removeHome(home);
  },
);
