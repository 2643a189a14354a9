// The credential rules at the proxy: each credential valid, wrong, missing and another sandbox's, on every kind of route.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { sdkKeyOf } from "@svc/contract/sdk-key.ts";
import { deploymentKey } from "./proxy-fixture.ts";
import { ask, type Headers, openSandboxes } from "./proxy-sandboxes.ts";

void test("envd of a secure sandbox accepts its own token only, on every path and by every address", async () => {
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

void test("private applications accept the traffic token in either spelling and never see it", async () => {
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
  for (const key of [deploymentKey, sdkKeyOf(deploymentKey)])
    assert.equal((await ask(fixture, "/", { ...to, "x-api-key": key })).seen.headers["x-api-key"], undefined);
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

void test("a sandbox never sees a named key, in either spelling, whether the key is valid or not", async () => {
  const named = [`sdk_${"a".repeat(64)}`, `e2b_${"b".repeat(40)}`];
  const keys = { size: named.length, knows: (text: string) => named.includes(text) };
  await using world = await openSandboxes({ keys, dropsKeyAsBearer: true });
  const { fixture } = world;
  const mine = await world.open({});
  const token = { "x-access-token": mine.envdAccessToken };
  for (const to of [mine.to(mine.port), { ...mine.to(49983), ...token }]) {
    for (const key of named) {
      assert.equal((await ask(fixture, "/", { ...to, "x-api-key": key })).seen.headers["x-api-key"], undefined);
      assert.equal((await ask(fixture, "/", { ...to, authorization: `Bearer ${key}` })).seen.headers["authorization"], undefined);
    }
    const unknown = `sdk_${"c".repeat(64)}`;
    assert.equal((await ask(fixture, "/", { ...to, "x-api-key": unknown })).seen.headers["x-api-key"], unknown);
  }
  // Some SDKs send a sandbox's headers with each call of the control plane: with a named key, such a call is the platform's.
  const listed = await ask(fixture, "/sandboxes", { ...mine.to(mine.port), "x-api-key": named[0] ?? "" });
  assert.notEqual(listed.seen.who, "application");
});

void test("a setting removes the key from Authorization: Bearer", async () => {
  await using world = await openSandboxes({ dropsKeyAsBearer: true });
  const { fixture } = world;
  const mine = await world.open({});
  const to = mine.to(mine.port);
  const token = { "x-access-token": mine.envdAccessToken };
  for (const authorization of ["Bearer mine", `Basic ${deploymentKey}`])
    assert.equal((await ask(fixture, "/", { ...to, authorization })).seen.headers["authorization"], authorization);
  for (const scheme of ["Bearer", "bearer"]) {
    const authorization = `${scheme} ${scheme === "Bearer" ? sdkKeyOf(deploymentKey) : deploymentKey}`;
    assert.equal((await ask(fixture, "/", { ...to, authorization })).seen.headers["authorization"], undefined);
    assert.equal((await ask(fixture, "/", { ...mine.to(49983), ...token, authorization })).seen.headers["authorization"], undefined);
  }
});

void test("the proxy's headers about the client cannot be forged, and Connection removes none of them", async () => {
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

void test("a signed file URL needs no header and no address, and a header takes precedence over a signature", async () => {
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

void test("invalid addresses are answered 400 with the expected form", async () => {
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
