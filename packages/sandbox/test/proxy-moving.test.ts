// Requests for sandboxes that are moving to or from another node.
import assert from "node:assert/strict";
import { test } from "node:test";
import { openFixture } from "./proxy-fixture.ts";

type Fixture = Awaited<ReturnType<typeof openFixture>>;

const ask = (fixture: Fixture, sandboxID: string, port: number) =>
  fetch(`http://127.0.0.1:${fixture.port}/`, { headers: { "x-svc-sandbox-id": sandboxID, "x-svc-target-port": String(port) } });

async function waitingIs(fixture: Fixture, count: number): Promise<void> {
  while (!(await fixture.metrics.text()).includes(`svc_proxy_waiting ${count}\n`)) await new Promise((resolve) => setTimeout(resolve, 5));
}

void test("requests wait while their sandbox moves, whatever its state meanwhile, and are answered by its state afterwards", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const { port } = await fixture.serve(sandbox.host, 0, (_, response) => response.end("here"));
  for (const outcome of ["stayed", "moved"] as const) {
    fixture.entries.set(sandbox.sandboxID, sandbox);
    const over = fixture.move(sandbox.sandboxID);
    const early = ask(fixture, sandbox.sandboxID, port);
    await waitingIs(fixture, 1);
    fixture.pauseWithoutWake(sandbox.sandboxID);
    const late = ask(fixture, sandbox.sandboxID, port);
    await waitingIs(fixture, 2);
    if (outcome === "stayed") fixture.entries.set(sandbox.sandboxID, sandbox);
    else {
      fixture.lose(sandbox.sandboxID);
      fixture.away.set(sandbox.sandboxID, "node-2");
    }
    over();
    for (const response of [await early, await late]) {
      const text = await response.text();
      if (outcome === "stayed") assert.equal(text, "here");
      else assert.deepEqual([response.status, response.headers.get("x-svc-reason")], [421, "moved"]);
    }
  }
  assert.deepEqual(fixture.waking.calls, [], "a move resumes nothing by itself");
  assert.match(await fixture.metrics.text(), /svc_proxy_wakes_total\{outcome="moved"\} 2/);
});

void test("a request that a move cuts off is not answered that its sandbox is gone", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const arrived = Promise.withResolvers<void>();
  const { port } = await fixture.serve(sandbox.host, 0, () => arrived.resolve());
  const asked = ask(fixture, sandbox.sandboxID, port);
  await arrived.promise;
  assert.equal(fixture.proxy.waitingFor(sandbox.sandboxID), 1);
  const over = fixture.move(sandbox.sandboxID);
  fixture.pauseWithoutWake(sandbox.sandboxID);
  const response = await asked;
  assert.deepEqual([response.status, response.headers.get("x-svc-reason")], [502, "cut_off"]);
  const { message } = (await response.json()) as { message: string };
  assert.match(message, /may have been carried out/);
  assert.doesNotMatch(message, /was not found|port is not open/);
  assert.equal(fixture.proxy.waitingFor(sandbox.sandboxID), 0);
  over();
});
