// A paused sandbox whose memory needs a processor that this machine is not: its files start here all the same.
import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { connectSandbox, pauseSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";

void test(
  "a sandbox whose memory needs another processor is refused with the way out, and starts from its files",
  needs("root", "envd", "base", "runsc"),
  async () => {
    await using node = await startNode({ runtime: "gvisor" });
    const connection = { apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey };
    const { sandboxID } = await node.call(createSandbox, { templateID: "base", timeout: 3600 });
    await (await Sandbox.connect(sandboxID, connection)).files.write("kept", "mine");
    await node.call(pauseSandbox, { sandboxID });
    const manifests = readdirSync(node.home, { recursive: true, encoding: "utf8" }).filter(
      (path) => path.endsWith("/manifest.json") && path.startsWith("snapshots/"),
    );
    assert.equal(manifests.length, 1);
    const path = join(node.home, manifests[0] ?? "");
    const manifest = JSON.parse(readFileSync(path, "utf8")) as { processor: { flags: string[] } };
    manifest.processor.flags.push("avx4096");
    writeFileSync(path, JSON.stringify(manifest));
    await assert.rejects(node.call(connectSandbox, { sandboxID }), (error: Error) => {
      assert.equal(error.name, "SNAPSHOT_UNSUITABLE");
      assert.match(error.message, /lacks avx4096; .*--files-only/);
      return true;
    });
    await node.call(connectSandbox, { sandboxID, memory: false });
    assert.equal(await (await Sandbox.connect(sandboxID, connection)).files.read("kept"), "mine");
  },
);
