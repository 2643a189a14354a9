// Bodies of any size pass through the node and envd unchanged, with constant memory.
import assert from "node:assert/strict";
import { test } from "node:test";
import { createSandbox } from "@svc/contract/sandbox.ts";
import { download, envdAt, peakResidentBytes, upload } from "../src/bulk.ts";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";

/** The limit of the node's growth in resident size, whatever passes through. */
const GROWTH_BYTES = 150e6;

export function bulkSuite(runtime: "gvisor" | "runc", program: string, sizeBytes: number): void {
  const name = `${sizeBytes / 2 ** 20} MiB go up to a ${runtime} sandbox and come back the same, and the node's memory stays flat`;
  void test(name, needs("root", "envd", "base", program), async () => {
    await using node = await startNode({ runtime });
    const sandbox = await node.call(createSandbox, { templateID: "base", timeout: 3000 });
    const envd = envdAt(node.port, sandbox);
    await upload(envd, "/home/user/warm", 2 ** 20);
    const before = peakResidentBytes(node.pid);
    const sent = await upload(envd, "/home/user/bulk", sizeBytes);
    assert.deepEqual(await download(envd, "/home/user/bulk"), { sizeBytes, sha256: sent });
    const growth = peakResidentBytes(node.pid) - before;
    assert.ok(growth < GROWTH_BYTES, `the node grew by ${growth} bytes`);
  });
}
