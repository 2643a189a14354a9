// The credential rules at the proxy: each credential right, wrong, missing and another sandbox's, on every kind of route.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import type { RequestListener } from "node:http";
import { test } from "node:test";
import { bodyOf, deploymentKey, type Fixture, openFixture } from "./proxy-fixture.ts";

type Headers = Record<string, string>;
type Seen = { who: string; url: string; headers: Headers };

async function ask(
  fixture: Fixture,
  path: string,
  headers: Headers,
  method = "GET",
): Promise<{ status: number; text: string; seen: Seen; body: { code: number; message: string } }> {
  const lines = Object.entries({ host: "a", connection: "close", ...headers }).map(([name, value]) => `${name}: ${value}\r\n`);
  const received = await fixture.raw(`${method} ${path} HTTP/1.1\r\n${lines.join("")}\r\n`);
  const body = bodyOf(received) as Seen & { code: number; message: string };
  assert.match(received, /\r\ncontent-length: [1-9]/i, "no body is empty");
  return { status: Number(received.slice(9, 12)), text: received, seen: body, body };
}

async function openSandboxes(options: Parameters<typeof openFixture>[0] = {}) {
  const fixture = await openFixture(options);
  const open = async (access: { secure?: boolean; trafficPrivate?: boolean; maskRequestHost?: string }) => {
    const sandbox = fixture.sandbox(access);
    const tell =
      (who: string): RequestListener =>
      (request, response) => {
        request.resume();
        const text = JSON.stringify({ who, url: request.url, headers: request.headers });
        response.setHeader("content-length", text.length);
        response.end(text);
      };
    await fixture.serve(sandbox.host, 49983, tell("envd"));
    const { port } = await fixture.serve(sandbox.host, 0, tell("application"));
    const to = (target: number | string, pair: "svc" | "e2b" = "svc"): Headers =>
      pair === "svc"
        ? { "x-svc-sandbox-id": sandbox.sandboxID, "x-svc-target-port": String(target) }
        : { "e2b-sandbox-id": sandbox.sandboxID, "e2b-sandbox-port": String(target) };
    return { ...sandbox, port, to };
  };
  return { fixture, open, [Symbol.asyncDispose]: () => fixture[Symbol.asyncDispose]() };
}

void test("envd of a secure sandbox takes its own token only, on every path and by every address", async () => {
  await using world = await openSandboxes();
  const { fixture } = world;
  const mine = await world.open({});
  const other = await world.open({});
  const hostOf = { host: `49983-${mine.sandboxID}.localhost:8000` };
  for (const path of ["/health", "/proxy/health", "/files?path=x", "/process.Process/Start", "/"]) {
    for (const address of [mine.to(49983), mine.to(49983, "e2b"), hostOf]) {
      const right = await ask(fixture, path, { ...address, "x-access-token": mine.envdAccessToken });
      assert.equal(right.seen.who, "envd");
      assert.equal(right.seen.headers["x-access-token"], mine.envdAccessToken);
      assert.equal(right.seen.url, address === hostOf ? path : path.replace("/proxy", ""));
      for (const wrong of [
        {},
        { "x-access-token": other.envdAccessToken },
        { "x-access-token": mine.trafficAccessToken },
        { "x-access-token": "" },
        { "x-access-token": deploymentKey },
        { authorization: `Bearer ${mine.envdAccessToken}` },
        { "x-api-key": deploymentKey },
      ]) {
        const refused = await ask(fixture, path, { ...address, ...wrong } as Headers);
        assert.equal(refused.status, 401);
        assert.equal(refused.body.code, 401);
        assert.match(refused.body.message, /X-Access-Token/);
      }
    }
  }
});

void test("envd of an insecure sandbox needs no credential", async () => {
  await using world = await openSandboxes();
  const mine = await world.open({ secure: false });
  assert.equal((await ask(world.fixture, "/proxy/health", mine.to(49983))).seen.who, "envd");
});

void test("private applications take the traffic token in either spelling and never see it", async () => {
  await using world = await openSandboxes();
  const { fixture } = world;
  const mine = await world.open({ trafficPrivate: true });
  const other = await world.open({ trafficPrivate: true });
  for (const name of ["svc-traffic-access-token", "e2b-traffic-access-token", "E2B-Traffic-Access-Token"]) {
    const right = await ask(fixture, "/proxy/x", { ...mine.to(mine.port), [name]: mine.trafficAccessToken });
    assert.equal(right.seen.who, "application");
    assert.deepEqual(
      Object.keys(right.seen.headers).filter((key) => /traffic|sandbox|target/.test(key)),
      [],
    );
    for (const wrong of [other.trafficAccessToken, mine.envdAccessToken, deploymentKey, ""]) {
      const refused = await ask(fixture, "/proxy/x", { ...mine.to(mine.port), [name]: wrong });
      assert.equal(refused.status, 403);
      assert.match(refused.body.message, /svc-traffic-access-token/);
    }
  }
  for (const headers of [
    {},
    { authorization: `Bearer ${mine.trafficAccessToken}` },
    { "x-access-token": mine.envdAccessToken },
    { "x-api-key": deploymentKey },
  ] as Headers[]) {
    assert.equal((await ask(fixture, "/", { ...mine.to(mine.port), ...headers })).status, 403);
  }
  const both = await ask(fixture, "/", { ...mine.to(mine.port), "svc-traffic-access-token": mine.trafficAccessToken, "e2b-traffic-access-token": "x" });
  assert.equal(both.status, 403);
});

void test("a sandbox never sees the deployment's key, and an application never its own envd token", async () => {
  await using world = await openSandboxes();
  const { fixture } = world;
  const mine = await world.open({});
  const other = await world.open({});
  const to = mine.to(mine.port);
  const token = { "x-access-token": mine.envdAccessToken };
  assert.equal((await ask(fixture, "/", { ...to, "x-api-key": deploymentKey })).seen.headers["x-api-key"], undefined);
  assert.equal((await ask(fixture, "/", { ...to, "x-api-key": "mine" })).seen.headers["x-api-key"], "mine");
  assert.equal((await ask(fixture, "/", { ...mine.to(49983), ...token, "X-API-KEY": deploymentKey })).seen.headers["x-api-key"], undefined);
  assert.equal((await ask(fixture, "/", { ...mine.to(49983), ...token, "X-API-KEY": "mine" })).seen.headers["x-api-key"], "mine");
  assert.equal((await ask(fixture, "/", { ...to, ...token })).seen.headers["x-access-token"], undefined);
  assert.equal((await ask(fixture, "/", { ...to, "x-access-token": other.envdAccessToken })).seen.headers["x-access-token"], other.envdAccessToken);
  for (const authorization of ["Basic eDp5", "Bearer mine", "Bearer", `Basic ${deploymentKey}`, `Bearer ${deploymentKey}`]) {
    assert.equal((await ask(fixture, "/", { ...to, authorization })).seen.headers["authorization"], authorization);
    assert.equal((await ask(fixture, "/", { ...mine.to(49983), ...token, authorization })).seen.headers["authorization"], authorization);
  }
});

void test("an owner may have the key taken out of Authorization: Bearer", async () => {
  await using world = await openSandboxes({ dropsKeyAsBearer: true });
  const { fixture } = world;
  const mine = await world.open({});
  const to = mine.to(mine.port);
  const token = { "x-access-token": mine.envdAccessToken };
  for (const authorization of ["Bearer mine", `Basic ${deploymentKey}`])
    assert.equal((await ask(fixture, "/", { ...to, authorization })).seen.headers["authorization"], authorization);
  for (const scheme of ["Bearer", "bearer"]) {
    const authorization = `${scheme} ${deploymentKey}`;
    assert.equal((await ask(fixture, "/", { ...to, authorization })).seen.headers["authorization"], undefined);
    assert.equal((await ask(fixture, "/", { ...mine.to(49983), ...token, authorization })).seen.headers["authorization"], undefined);
  }
});

void test("what the proxy tells of the client cannot be forged, and Connection takes no header away", async () => {
  await using world = await openSandboxes();
  const mine = await world.open({ maskRequestHost: ["app.test:$", "{PORT}"].join("") });
  const forged = { "x-forwarded-for": "6.6.6.6", "x-forwarded-host": "evil", "x-forwarded-proto": "https", forwarded: "for=6.6.6.6", "x-real-ip": "6.6.6.6" };
  const { headers } = (
    await ask(world.fixture, "/", {
      ...mine.to(mine.port),
      ...forged,
      connection: "close, host, x-api-key, x-own",
      "x-own": "1",
      "x-api-key": "mine",
      "keep-alive": "timeout=1",
    })
  ).seen;
  assert.equal(headers["x-forwarded-for"], "127.0.0.1");
  assert.equal(headers["x-forwarded-host"], "a");
  assert.equal(headers["x-forwarded-proto"], "http");
  assert.equal(headers["host"], `app.test:${mine.port}`);
  assert.equal(headers["x-api-key"], "mine");
  for (const name of ["forwarded", "x-real-ip", "x-own", "keep-alive"]) assert.equal(headers[name], undefined, name);
});

void test("envd's internal routes do not exist from outside, however they are spelled", async () => {
  await using world = await openSandboxes();
  const mine = await world.open({});
  for (const path of [
    "/init",
    "/relay?port=80",
    "/freeze",
    "/unfreeze",
    "/collapse",
    "/fsfreeze",
    "/fsthaw",
    "//init",
    "/./init",
    "/x/../init",
    "/%69nit",
    "/%2569nit",
    "/INIT",
    "/init/",
    "/init?x",
    "/files/..%2finit",
    "/%2e%2e/init",
    "/init;a=b",
    "/\\init",
    "/proxy/init",
    "/proxy//init",
    "/init%20",
    "/init%00",
  ]) {
    const refused = await ask(world.fixture, path, { ...mine.to(49983), "x-access-token": mine.envdAccessToken }, "POST");
    assert.equal(refused.status, 404, path);
    assert.equal(refused.body.code, 404);
  }
  assert.equal((await ask(world.fixture, "/init", mine.to(mine.port))).seen.who, "application");
});

void test("a signed file URL needs no header and no address, and a header beats a signature", async () => {
  await using world = await openSandboxes();
  const { fixture } = world;
  const mine = await world.open({});
  await world.open({});
  const sign = (op: string, token: string, expires?: number) =>
    `v1_${createHash("sha256")
      .update(`/a b:${op}:user:${token}${expires === undefined ? "" : `:${expires}`}`)
      .digest("base64")
      .replaceAll("=", "")}`;
  const url = (signature: string, rest = "") => `/files?path=${encodeURIComponent("/a b")}&username=user&signature=${encodeURIComponent(signature)}${rest}`;
  const read = url(sign("read", mine.envdAccessToken));
  for (let time = 0; time < 2; time++) {
    for (const prefix of ["", "/proxy"]) {
      const served = await ask(fixture, `${prefix}${read}`, {});
      assert.equal(served.seen.who, "envd");
      assert.equal(served.seen.url, read);
    }
  }
  assert.equal((await ask(fixture, url(sign("write", mine.envdAccessToken)), {}, "POST")).seen.who, "envd");
  assert.equal((await ask(fixture, url(sign("read", mine.envdAccessToken, 99), "&signature_expiration=99"), {})).seen.who, "envd");
  assert.equal((await ask(fixture, read, mine.to(49983))).seen.who, "envd");
  const wrong = await ask(fixture, url(sign("write", mine.envdAccessToken)), {});
  assert.deepEqual([wrong.status, wrong.body.message], [401, "invalid signature: no sandbox here made it that is running or wakes by itself"]);
  assert.equal((await ask(fixture, read, { ...mine.to(49983), "x-access-token": "wrong" })).status, 401);
  assert.equal((await ask(fixture, "/health?signature=x", mine.to(49983))).status, 401);
  fixture.entries.delete(mine.sandboxID);
  assert.equal((await ask(fixture, read, {})).status, 401);
});

void test("files and health without address are found by the token of a running sandbox", async () => {
  await using world = await openSandboxes();
  const { fixture } = world;
  const mine = await world.open({});
  const token = { "x-access-token": mine.envdAccessToken };
  const own = ["/files?path=x", "/process.Process/Start", "/filesystem.Filesystem/Stat", "/proxy/process.Process/List"];
  for (const path of [...own, "/proxy/health", "/proxy/files?path=x"]) assert.equal((await ask(fixture, path, token)).seen.who, "envd");
  for (const path of ["/files", "/process.Process/Start"]) assert.equal((await ask(fixture, path, { "x-access-token": "x" })).status, 401);
  assert.equal((await ask(fixture, "/process.Process/Start", {})).seen.who, "control");
  assert.equal((await ask(fixture, "/proxy/health", { "x-access-token": "x" })).status, 502);
  for (const headers of [{}, token, { "x-access-token": "x" }] as Headers[])
    assert.equal((await ask(fixture, "/health", headers)).seen.who, "control", "without a routing header it is the platform's");
  assert.equal((await ask(fixture, "/metrics", token)).seen.who, "control");
});

void test("addresses that are none are answered 400 and say what is wanted", async () => {
  await using world = await openSandboxes();
  const { fixture } = world;
  const mine = await world.open({ secure: false });
  for (const port of ["0", "65536", "049983", "abc", "+80", "-1", "80 81", "1e3", "0x50", "", "49983.0"])
    assert.equal((await ask(fixture, "/", mine.to(port))).status, 400, port);
  for (const label of ["0", "65536", "049983", "+80"])
    assert.equal((await ask(fixture, "/", { host: `${label}-${mine.sandboxID}.localhost` })).status, 400, label);
  for (const half of Object.entries({ ...mine.to(80), ...mine.to(80, "e2b") })) assert.equal((await ask(fixture, "/", Object.fromEntries([half]))).status, 400);
  const missing = await ask(fixture, "/proxy/x", {});
  assert.equal(missing.status, 400);
  assert.match(missing.body.message, /x-svc-sandbox-id and x-svc-target-port, or e2b-sandbox-id and e2b-sandbox-port/);
  assert.equal((await ask(fixture, "/proxyx", {})).seen.who, "control");
  assert.equal((await ask(fixture, "/", { ...mine.to(mine.port), "e2b-sandbox-id": "other", "e2b-sandbox-port": "80" })).status, 400);
  const twice = await fixture.raw(
    `GET / HTTP/1.1\r\nHost: a\r\nx-svc-sandbox-id: ${mine.sandboxID}\r\nX-Svc-Sandbox-Id: other\r\nx-svc-target-port: 80\r\nConnection: close\r\n\r\n`,
  );
  assert.match(twice, /^HTTP\/1\.1 400 /);
  for (const name of ["X-Access-Token", "X-API-Key"]) {
    const conflict = await fixture.raw(
      `GET / HTTP/1.1\r\nHost: ${mine.port}-${mine.sandboxID}.localhost\r\n${name}: a\r\n${name}: b\r\nConnection: close\r\n\r\n`,
    );
    assert.match(conflict, /^HTTP\/1\.1 400 /);
  }
  const byHost = await ask(fixture, "/proxy/x", { ...mine.to("bad"), host: `${mine.port}-${mine.sandboxID.toUpperCase()}.LocalHost.:8000` });
  assert.equal(byHost.seen.url, "/proxy/x", "the host wins over headers, and its path belongs to the application");
});

void test("a call of the control plane with the key stays one, whatever sandbox headers an SDK sends along", async () => {
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
  fixture.rest(mine.sandboxID);
  assert.equal((await ask(fixture, paths[0] ?? "", { ...mine.to(49983, "e2b"), "x-api-key": deploymentKey }, "POST")).seen.who, "control");
});

void test("an id with the client's behind it, as the first SDKs write it, is that of the sandbox", async () => {
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

void test("heads of 64 KiB pass in both directions, and larger ones are refused in words", async () => {
  await using world = await openSandboxes();
  const { fixture } = world;
  const mine = await world.open({});
  const { port } = await fixture.serve(mine.host, 0, (request, response) => {
    const sizeBytes = Number(request.headers["x-size"]);
    // One large cookie, and as many small ones as some frameworks set.
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
