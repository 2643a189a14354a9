// The most common kinds of abuse; the rest is in abuse.long.test.ts.
import assert from "node:assert/strict";
import { type IncomingMessage, request } from "node:http";
import { test } from "node:test";
import { Sandbox } from "e2b";
import { abuses, ENDLESS_PORT, endlessServer } from "../src/abuse.ts";
import { peakResidentBytes } from "../src/bulk.ts";
import { until } from "../src/until.ts";
import { abuseSuite } from "./abuse.suite.ts";

const STREAMS = 20;
/** Many more than a sandbox with 128 processes can run. */
const COMMANDS = 400;
/** As many connections as a relay can dial within its limit on a shared core. */
const WAVE = 50;
/** Far less than twenty endless answers would need if they were buffered. */
const NODE_BYTES = 1024 ** 3;
const ROUNDS = 6;
const AT_ONCE = 8;
/** Half of the limits, which are 128 MB and 128 processes. */
const HALF_OF_ITS_LIMIT = 64;

abuseSuite("gvisor", ["forks", "memory", "disk", "output", "processor"], (bench) => {
  const connection = () => ({ apiUrl: bench.node.url, sandboxUrl: bench.node.url, apiKey: bench.node.apiKey });

  void test("endless answers that no client reads delay neither the node nor a neighbour, and end with their sandbox", async () => {
    const sandbox = await bench.create();
    await sandbox.files.write("endless.py", endlessServer);
    await sandbox.commands.run("python3 endless.py", { background: true, timeoutMs: 0 });
    const headers = { "x-svc-sandbox-id": sandbox.sandboxId, "x-svc-target-port": String(ENDLESS_PORT) };
    // The client reads the first bytes, then stops.
    const open = () =>
      new Promise<IncomingMessage>((resolve, reject) => {
        const call = request({ host: "127.0.0.1", port: bench.node.port, path: "/", headers, agent: false }, (response) => {
          response.on("error", () => {}).once("data", () => response.pause());
          if (response.statusCode === 200) resolve(response);
          else reject(new Error(`HTTP ${response.statusCode}`));
        });
        call.on("error", reject);
        call.end();
      });
    const first = await until("the server", () => open().catch(() => undefined));
    const streams = await Promise.all(Array.from({ length: STREAMS }, open));
    await bench.neighbourWorks();
    assert.ok(peakResidentBytes(bench.node.pid) < NODE_BYTES);
    assert.equal(await sandbox.kill(), true);
    for (const response of [first, ...streams]) response.resume();
    await until("the ends of all answers", () => (streams.every((response) => response.destroyed) && first.destroyed ? true : undefined));
    assert.equal(await bench.fate(sandbox.sandboxId), "killed");
    await bench.neighbourWorks();
  });

  void test("commands beyond a sandbox's process limit are refused by name, and the others run", async () => {
    const sandbox = await bench.create();
    const one = () => sandbox.commands.run("sleep 600", { background: true, timeoutMs: 0, requestTimeoutMs: 300_000 });
    const outcomes: PromiseSettledResult<unknown>[] = [];
    for (let begun = 0; begun < COMMANDS; begun += WAVE) outcomes.push(...(await Promise.allSettled(Array.from({ length: WAVE }, one))));
    const refused = outcomes.flatMap((each) => (each.status === "rejected" ? [each.reason as Error] : []));
    assert.ok(refused.length < COMMANDS && refused.length > 0, `${refused.length} refused`);
    for (const error of refused) assert.match(error.message, /resource|processes|fork/i);
    await bench.neighbourWorks();
    assert.equal(await bench.fate(sandbox.sandboxId), "running");
    assert.equal(await sandbox.kill(), true);
  });

  for (const [name, amountIn] of [
    ["disk", async (sandbox: Sandbox) => Number((await sandbox.commands.run("du -m /home/user/fill | cut -f1", { user: "root" })).stdout)],
    // A command's own forks are refused while the limit holds, so envd lists the processes.
    ["forks", async (sandbox: Sandbox) => (await sandbox.files.list("/proc", { user: "root" })).filter((entry) => /^\d+$/.test(entry.name)).length],
  ] as const) {
    void test(`a sandbox that ${abuses[name].what} can be paused, and continues after its resume`, async () => {
      const sandbox = await bench.create();
      const look = () => amountIn(sandbox);
      await bench.start(sandbox, abuses[name]);
      const before = await until("its limit", async () => {
        const amount = await look();
        return amount > HALF_OF_ITS_LIMIT ? amount : undefined;
      });
      await bench.neighbourWorks();
      assert.equal(await sandbox.pause(), true);
      await bench.neighbourWorks();
      await Sandbox.connect(sandbox.sandboxId, connection());
      await until("what it had", async () => ((await look()) > before / 2 ? true : undefined));
      await sandbox.kill();
    });
  }

  void test("a sandbox whose root stopped its own envd refuses a pause that requires a healthy guest, can be paused and is deleted", async () => {
    const sandbox = await bench.create();
    await bench.start(sandbox, abuses.stopped);
    await until("envd's silence", () =>
      sandbox.isRunning({ requestTimeoutMs: 10_000 }).then(
        () => undefined,
        () => true as const,
      ),
    );
    const pause = (body: object) =>
      fetch(`${bench.node.url}/sandboxes/${sandbox.sandboxId}/pause`, {
        method: "POST",
        headers: { "x-api-key": bench.node.apiKey, "content-type": "application/json" },
        body: JSON.stringify(body),
      });
    const refused = await pause({ requireHealthyGuest: true });
    assert.equal(((await refused.json()) as { error_code?: string }).error_code, "GUEST_UNRESPONSIVE");
    assert.equal(await bench.fate(sandbox.sandboxId), "running");
    assert.equal((await pause({})).status, 204);
    assert.equal(await bench.fate(sandbox.sandboxId), "paused");
    await bench.neighbourWorks();
    assert.equal(await sandbox.kill(), true);
  });
});

// On runc the cgroup's limit includes envd's own threads.
abuseSuite("runc", [], (bench) => {
  void test("envd answers requests for files while root has filled the sandbox with processes", async () => {
    const sandbox = await bench.create();
    await bench.start(sandbox, abuses.rootForks);
    await until("a full sandbox", () =>
      sandbox.commands.run("true").then(
        () => undefined,
        () => true as const,
      ),
    );
    for (let round = 0; round < ROUNDS; round++) await Promise.all(Array.from({ length: AT_ONCE }, () => sandbox.files.list("/")));
    await bench.neighbourWorks();
    assert.equal(await bench.fate(sandbox.sandboxId), "running");
    assert.equal(await sandbox.kill(), true);
  });
});
