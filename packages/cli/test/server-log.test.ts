// The logs of servers under `svc up`: two files of bounded size, while the server keeps writing.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdtempDisposableSync, readFileSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { lastLines, openLog, rotateLog } from "../src/servers/supervise.ts";

const MAX_BYTES = 64 * 1024;

void test("a server's log that grows too long is rotated while the server writes to it, and the server continues in an empty one", async () => {
  using folder = mkdtempDisposableSync(join(tmpdir(), "svc-log-"));
  const log = openLog(join(folder.path, "node.log"));
  const program = 'let n = 0; setInterval(() => { for (let i = 0; i < 50; i++) console.error("line " + n++); }, 5)';
  const server = spawn(process.execPath, ["-e", program], { stdio: ["ignore", "ignore", log.fd] });
  try {
    await until("it is long", () => (statSync(log.path).size > 2 * MAX_BYTES ? true : undefined));
    await rotateLog(log, MAX_BYTES);
    assert.ok(statSync(`${log.path}.1`).size > MAX_BYTES && readFileSync(`${log.path}.1`, "utf8").startsWith("line 0\n"));
    await until("it is written on", () => (statSync(log.path).size > 0 ? true : undefined));
    assert.match(readFileSync(log.path, "utf8"), /^line \d+\n/, "no hole where the old text was");
    assert.match(lastLines(log), /line \d+/);
  } finally {
    server.kill("SIGKILL");
  }
});

void test("a log that is short enough stays as it is", async () => {
  using folder = mkdtempDisposableSync(join(tmpdir(), "svc-log-"));
  const log = openLog(join(folder.path, "node.log"));
  await rotateLog(log, MAX_BYTES);
  assert.equal(existsSync(`${log.path}.1`), false);
});
