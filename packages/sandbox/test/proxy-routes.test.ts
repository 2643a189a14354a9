// The destination of a request at the proxy, whatever headers an SDK adds, and the size bounds of heads.
import assert from "node:assert/strict";
import { test } from "node:test";
import { deploymentKey } from "./proxy-fixture.ts";
import { ask, type Headers, openSandboxes } from "./proxy-sandboxes.ts";

void test("a call of the control plane with the key reaches it, whatever sandbox headers an SDK adds", async () => {
  await using world = await openSandboxes();
  const { fixture } = world;
  const mine = await world.open({});
  const paths = [`/sandboxes/${mine.sandboxID}/connect`, "/sandboxes", "/v2/sandboxes?limit=1", "/v3/templates", "/snapshots", "/volumes", "/nodes/self"];
  for (const path of paths) {
    for (const port of [49983, mine.port]) {
      for (const pair of ["e2b", "svc"] as const) {
        const asked = await ask(fixture, path, { ...mine.to(port, pair), "x-api-key": deploymentKey }, "POST");
        assert.equal(asked.seen.who, "control", path);
        assert.equal(asked.seen.url, path);
        assert.equal(asked.seen.headers["x-api-key"], deploymentKey);
        assert.equal(asked.seen.headers["e2b-sandbox-id"], undefined);
      }
    }
    const half = await ask(fixture, path, { "e2b-sandbox-id": mine.sandboxID, "x-api-key": deploymentKey });
    assert.equal(half.seen.who, "control", "half a pair is no reason to refuse it");
    const to = mine.to(mine.port);
    for (const headers of [to, { ...to, "x-api-key": "another" }, { ...to, authorization: `Bearer ${deploymentKey}` }] as Headers[])
      assert.equal((await ask(fixture, path, headers)).seen.who, "application", "without the key it is the sandbox's");
    assert.equal((await ask(fixture, path, { host: `${mine.port}-${mine.sandboxID}.localhost`, "x-api-key": deploymentKey })).seen.who, "application");
  }
  fixture.pauseWithoutWake(mine.sandboxID);
  assert.equal((await ask(fixture, paths[0] ?? "", { ...mine.to(49983, "e2b"), "x-api-key": deploymentKey }, "POST")).seen.who, "control");
});

void test("a sandbox id with the client id appended, as in early SDKs, names the sandbox", async () => {
  await using world = await openSandboxes();
  const { fixture } = world;
  const mine = await world.open({});
  assert.equal((await ask(fixture, "/", { host: `${mine.port}-${mine.sandboxID}-svc.localhost` })).seen.who, "application");
  assert.equal((await ask(fixture, "/", { "e2b-sandbox-id": `${mine.sandboxID}-svc`, "e2b-sandbox-port": String(mine.port) })).seen.who, "application");
  assert.equal((await ask(fixture, "/", { host: `${mine.port}-${mine.sandboxID}-other.localhost` })).status, 502);
});

void test("below /proxy every path is the sandbox's, and a key decides nothing", async () => {
  await using world = await openSandboxes();
  const { fixture } = world;
  const mine = await world.open({});
  for (const path of ["/sandboxes", "/v2/sandboxes", "/templates", "/health", "/"]) {
    const { seen } = await ask(fixture, `/proxy${path}`, { ...mine.to(mine.port), "x-api-key": deploymentKey });
    assert.deepEqual([seen.who, seen.url, seen.headers["x-api-key"]], ["application", path, undefined]);
    assert.equal((await ask(fixture, `/proxy${path}`, { ...mine.to(49983), "x-api-key": deploymentKey })).status, 401);
    assert.equal((await ask(fixture, `/proxy${path}`, { "x-api-key": deploymentKey })).status, 400);
  }
  for (const path of ["/healthz", "/sandboxesx", "/app/sandboxes", "/Sandboxes", "/metrics", "/events.json"])
    assert.equal((await ask(fixture, path, { ...mine.to(mine.port), "x-api-key": deploymentKey })).seen.who, "application", path);
});

void test("heads of 64 KiB pass in both directions, and larger ones are refused with a message", async () => {
  await using world = await openSandboxes();
  const { fixture } = world;
  const mine = await world.open({});
  const { port } = await fixture.serve(mine.host, 0, (request, response) => {
    const sizeBytes = Number(request.headers["x-size"]);
    // The head has one large cookie, and as many small ones as some frameworks set.
    response.setHeader("x-large", "b".repeat(sizeBytes - 200 * 40));
    response.setHeader(
      "set-cookie",
      Array.from({ length: 200 }, (_, at) => `c${at}=`.padEnd(26, "v")),
    );
    response.end(JSON.stringify({ who: "application", headers: { got: request.headers["x-filler"]?.length } }));
  });
  const to = mine.to(port);
  const passed = await ask(fixture, "/", { ...to, "x-size": String(64 * 1024 - 512), "x-filler": "a".repeat(14 * 1024) });
  assert.equal(passed.status, 200);
  assert.ok(passed.text.indexOf("\r\n\r\n") >= 64 * 1024 - 512, "the whole head came");
  const large = await ask(fixture, "/", { ...to, "x-size": String(80 * 1024) });
  assert.equal(large.status, 502);
  assert.match(large.body.message, /malformed: its head is larger than 73728 bytes/);
  const echo = await fixture.serveRaw(mine.host, 0, (socket) => {
    let got = "";
    socket.on("data", (bytes) => {
      got += bytes.toString("latin1");
      if (!got.includes("\r\n\r\n")) return;
      const body = JSON.stringify({ who: "application", headers: { bytes: got.length } });
      socket.end(`HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`);
    });
  });
  const filler = (sizeBytes: number) => ({ ...mine.to(echo), "x-filler": "a".repeat(sizeBytes) });
  assert.ok(Number((await ask(fixture, "/", filler(64 * 1024 - 256))).seen.headers["bytes"]) > 64 * 1024 - 256);
  const refused = await ask(fixture, "/", filler(80 * 1024));
  assert.equal(refused.status, 431);
  assert.match(refused.body.message, /larger than 73728 bytes/);
});
