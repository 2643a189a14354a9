// The guide's example of the client, executed as it is printed.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { startMaster } from "./master.ts";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));

void test("the guide's example stores and reads", async () => {
  await using master = await startMaster();
  const example = /```ts\n(import \{ StoreClient \}[\s\S]*?)```/.exec(readFileSync(`${ROOT}/docs/store-client.md`, "utf8"))?.[1];
  assert.ok(example !== undefined, "docs/store-client.md has an example of the client");
  const shown = 'process.stdout.write((await client.get("key")) + " " + (await client.size("block-1")));';
  const code = `${example.replace("127.0.0.1:50051", `127.0.0.1:${master.rpcPort}`).replace("512 << 20", "16 << 20")}\n${shown}`;
  const { stdout } = await promisify(execFile)(process.execPath, ["--disable-warning=ExperimentalWarning", "--input-type=module-typescript", "--eval", code], {
    cwd: ROOT,
  });
  assert.equal(stdout, "bytes 65536");
});
