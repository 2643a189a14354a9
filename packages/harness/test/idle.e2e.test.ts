// Idle sandboxes are paused if requests can resume them; sandboxes that work or are in use are left alone.
import assert from "node:assert/strict";
import { test } from "node:test";
import { getSandboxLogsV2 } from "@svc/contract/observe.ts";
import { createSandbox, getSandbox } from "@svc/contract/sandbox.ts";
import { Sandbox } from "e2b";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { until } from "../src/until.ts";

const WAKING = { onTimeout: "pause", autoResume: true } as const;

const stateOf = async (node: TestNode, { sandboxId }: Sandbox) => (await node.call(getSandbox, { sandboxID: sandboxId })).state;

async function pausesBy(node: TestNode, cause: string): Promise<number> {
  const text = await (await fetch(`${node.url}/metrics`)).text();
  return Number(new RegExp(`^svc_node_idle_pauses_total\\{cause="${cause}"\\} (\\d+)$`, "m").exec(text)?.[1]);
}

const open = (node: TestNode, lifecycle?: typeof WAKING) =>
  Sandbox.create("base", {
    apiUrl: node.url,
    sandboxUrl: node.url,
    apiKey: node.apiKey,
    timeoutMs: 600_000,
    ...(lifecycle === undefined ? {} : { lifecycle }),
  });

void test(
  "a sandbox that does nothing is paused and comes back with the next request; one that works, streams or may not be woken runs on",
  needs("root", "envd", "base", "runsc"),
  async () => {
    await using node = await startNode({ runtime: "gvisor", flags: ["--sandbox.idle_pause_seconds=15"] });
    const working = await open(node, WAKING);
    await working.commands.run("sh -c 'while :; do :; done' & disown", { timeoutMs: 0 });
    const streaming = await open(node, WAKING);
    const stream = await streaming.commands.run("sleep 600", { background: true, timeoutMs: 0 });
    const unwoken = await open(node);
    // The idle time from the setting is shown like one given in a create.
    const idleTimes = [working, unwoken].map(async ({ sandboxId }) => (await node.call(getSandbox, { sandboxID: sandboxId })).idlePauseSeconds);
    assert.deepEqual(await Promise.all(idleTimes), [15, undefined]);
    const quiet = await open(node, WAKING);
    await quiet.commands.run("echo mine > note; sleep 1000 > /dev/null 2>&1 & echo $! > pid");
    const before = await pausesBy(node, "idle");
    await until("the idle sandbox to be paused", async () => ((await stateOf(node, quiet)) === "paused" ? true : undefined));
    assert.equal(await pausesBy(node, "idle"), before + 1);
    assert.deepEqual(await Promise.all([working, streaming, unwoken].map((each) => stateOf(node, each))), ["running", "running", "running"]);
    assert.equal((await quiet.commands.run("cat note; kill -0 $(cat pid) && echo lives")).stdout, "mine\nlives\n");
    assert.equal(await stateOf(node, quiet), "running");
    // The stream was the last open connection.
    await stream.kill();
    await until("the other one to be paused", async () => ((await stateOf(node, streaming)) === "paused" ? true : undefined));
  },
);

void test("a full node pauses the longest idle sandbox rather than refuse a create, and gives the reason", needs("root", "envd", "base", "runsc"), async () => {
  await using node = await startNode({ runtime: "gvisor", flags: ["--sandbox.max_sandboxes=2"] });
  const idle = { templateID: "base", timeout: 600, autoPause: true, autoResume: { enabled: true }, idlePauseSeconds: 3600 };
  const first = await node.call(createSandbox, idle);
  const second = await node.call(createSandbox, idle);
  assert.equal((await node.call(getSandbox, first)).idlePauseSeconds, 3600);
  // Both sandboxes were just used and may get another request, so the node refuses creates until the first one counts as idle.
  const third = await until("room", () =>
    node.call(createSandbox, { templateID: "base", timeout: 600 }).catch((error: Error) => {
      assert.equal(error.name, "TOO_MANY_REQUESTS");
      return undefined;
    }),
  );
  const states = await Promise.all([first, second, third].map(async (each) => (await node.call(getSandbox, each)).state));
  assert.deepEqual(states, ["paused", "running", "running"]);
  assert.equal(await pausesBy(node, "places"), 1);
  const { logs } = await node.call(getSandboxLogsV2, { sandboxID: first.sandboxID });
  assert.ok(
    logs.some(({ message }) => message.startsWith("sandbox paused (cause places")),
    JSON.stringify(logs),
  );
});

void test(
  "while memory is short the idle ones are paused before their time; idlePauseSeconds without auto-resume is refused with what it needs",
  needs("root", "envd", "base", "runsc"),
  async () => {
    await using node = await startNode({ runtime: "gvisor", flags: ["--sandbox.idle_pause_below_memory_mb=16000000"] });
    const refused = { name: "INVALID_REQUEST", message: /idlePauseSeconds: needs autoPause: true and autoResume/ };
    await assert.rejects(node.call(createSandbox, { templateID: "base", idlePauseSeconds: 60 }), refused);
    await assert.rejects(node.call(createSandbox, { templateID: "base", autoPause: true, idlePauseSeconds: 60 }), refused);
    const common = { templateID: "base", timeout: 600, autoPause: true, autoResume: { enabled: true } };
    const willing = await node.call(createSandbox, { ...common, idlePauseSeconds: 3600 });
    const never = await node.call(createSandbox, { ...common, idlePauseSeconds: 0 });
    await until("the one that may be to be paused", async () => ((await node.call(getSandbox, willing)).state === "paused" ? true : undefined));
    assert.deepEqual([await pausesBy(node, "memory"), (await node.call(getSandbox, never)).state], [1, "running"]);
  },
);
