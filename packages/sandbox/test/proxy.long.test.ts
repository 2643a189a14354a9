// Two gibibytes in each direction through a proxy in a separate process, whose resident size stays flat.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import { bulkServer, digestOf, exchangeBulk } from "./proxy-bulk.ts";
import { listening, portOf } from "./proxy-fixture.ts";

const total = 2 * 1024 ** 3;
const residentBytes = 300 * 1024 * 1024;

void test("two gibibytes pass unchanged up and down while the proxy stays below 300 MiB", async () => {
  await using stack = new AsyncDisposableStack();
  const host = `127.${randomInt(1, 255)}.${randomInt(1, 255)}.2`;
  const server = createServer(bulkServer(total));
  await listening(server, { host, port: 0 });
  stack.defer(() => {
    server.closeAllConnections();
    server.close();
  });
  const script = join(import.meta.dirname, "../../../bench/proxy-process.ts");
  const proxy = spawn(process.execPath, [script, host, "none.sock", "t"], { stdio: ["pipe", "pipe", "inherit"] });
  stack.defer(async () => {
    proxy.kill("SIGTERM");
    await once(proxy, "exit");
  });
  const port = Number(String((await once(proxy.stdout, "data"))[0]));
  const routing = { "e2b-sandbox-id": "ibench00000000000001", "e2b-sandbox-port": String(portOf(server)), "e2b-traffic-access-token": "t" };
  const digest = digestOf(total);
  for (const chunked of [false, true]) assert.deepEqual(await exchangeBulk(port, total, chunked, routing), { up: digest, down: digest });
  const peak = Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${proxy.pid}/status`, "utf8"))?.[1]) * 1024;
  assert.ok(peak > 0 && peak < residentBytes, `the proxy's peak resident size was ${peak} bytes`);
});
