// ComputeSDK's provider: a command and a file.
import assert from "node:assert/strict";
import { e2b } from "@computesdk/e2b";

const compute = e2b({ apiKey: process.env.E2B_API_KEY });
const sandbox = await compute.sandbox.create();
try {
  assert.match((await sandbox.runCommand("echo $((6 * 7))")).stdout, /42/);
  await sandbox.filesystem.writeFile("/home/user/file.txt", "from computesdk");
  assert.equal(await sandbox.filesystem.readFile("/home/user/file.txt"), "from computesdk");
  console.log("used: e2b provider");
} finally {
  await sandbox.destroy();
}
