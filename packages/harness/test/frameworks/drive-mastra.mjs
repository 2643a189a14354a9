// Mastra's sandbox: it starts from a template that it builds, and runs commands.
import assert from "node:assert/strict";
import { E2BSandbox } from "@mastra/e2b";

const sandbox = new E2BSandbox({ template: "base" });
await sandbox._start();
try {
  assert.match((await sandbox.executeCommand("echo", ["42"])).stdout, /42/);
  console.log("used: E2BSandbox");
} finally {
  await sandbox._destroy();
}
