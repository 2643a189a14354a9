// Requests that wake no sandbox, and the answers if a sandbox cannot be woken.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { type FailureName, fail } from "@svc/contract/failures.ts";
import { until } from "@svc/harness/until.ts";
import type { Access } from "../src/records/directory.ts";
import { bodyOf, type Fixture, openFixture } from "./proxy-fixture.ts";

const address = ({ sandboxID }: Access, port: number) => `x-svc-sandbox-id: ${sandboxID}\r\nx-svc-target-port: ${port}\r\n`;

async function ask(fixture: Fixture, path: string, lines: string, method = "GET"): Promise<{ status: number; text: string; message: string }> {
  const text = await fixture.raw(`${method} ${path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n${lines}\r\n`);
  const body = text.includes("{") ? (bodyOf(text) as { message: string }) : { message: "" };
  return { status: Number(text.slice(9, 12)), text, message: body.message };
}

function sign(access: Access, path: string, operation: "read" | "write", expires?: number): string {
  const text = `${path}:${operation}::${access.envdAccessToken}${expires === undefined ? "" : `:${expires}`}`;
  const signature = `v1_${createHash("sha256").update(text).digest("base64").replace(/=+$/, "")}`;
  return new URLSearchParams({ path, signature, ...(expires === undefined ? {} : { signature_expiration: String(expires) }) }).toString();
}

void test("a request that a running sandbox would refuse gets the same refusal for a sleeping one, and does not wake it", async () => {
  await using fixture = await openFixture();
  const mine = fixture.sandbox({ trafficPrivate: true });
  const other = fixture.sandbox({ trafficPrivate: true });
  await fixture.serve(mine.host, 49983, (_, response) => response.end("envd"));
  const past = Math.floor(Date.now() / 1000) - 60;
  const requests: [path: string, lines: string, method?: string][] = [
    ["/health", address(mine, 49983)],
    ["/health", `${address(mine, 49983)}X-Access-Token: ${other.envdAccessToken}\r\n`],
    ["/health", `${address(mine, 49983)}X-Access-Token: a\r\nX-Access-Token: ${mine.envdAccessToken}\r\n`],
    ["/init", `${address(mine, 49983)}X-Access-Token: ${mine.envdAccessToken}\r\n`, "POST"],
    ["/%69nit", `${address(mine, 49983)}X-Access-Token: ${mine.envdAccessToken}\r\n`, "POST"],
    ["/", address(mine, 8080)],
    ["/", `${address(mine, 8080)}svc-traffic-access-token: ${other.trafficAccessToken}\r\n`],
    ["/", `${address(mine, 8080)}svc-traffic-access-token: ${mine.envdAccessToken}\r\n`],
    ["/", `${address(mine, 8080)}e2b-traffic-access-token: a\r\nsvc-traffic-access-token: ${mine.trafficAccessToken}\r\n`],
    ["/files?path=a", `X-Access-Token: ${mine.trafficAccessToken}\r\n`],
    [`/files?${sign(mine, "a", "write")}`, ""],
    [`/files?${sign(other, "a", "read").replace("path=a", "path=b")}`, ""],
  ];
  const answers = async () => Promise.all(requests.map((request) => ask(fixture, ...request)));
  const awake = await answers();
  for (const { status } of awake) assert.ok(status >= 400 && status < 500, `${status}`);
  fixture.sleep(mine);
  assert.deepEqual(await answers(), awake);
  // For a running sandbox, envd itself gives these refusals.
  for (const [query, words] of [
    [sign(other, "a", "read"), "invalid signature"],
    [sign(mine, "a", "read", past), "signature is already expired"],
    [`${sign(mine, "a", "read")}&signature_expiration=never`, "invalid signature"],
  ] as const) {
    const refused = await ask(fixture, `/files?${query}`, address(mine, 49983));
    assert.deepEqual([refused.status, refused.message], [401, words]);
  }
  assert.equal((await ask(fixture, `/files?${sign(mine, "a", "read", past)}`, "")).message, "signature is already expired");
  assert.deepEqual(fixture.waking.calls, []);
});

void test("a signed file URL, and a token without an id, wake the sandbox to which they belong", async () => {
  await using fixture = await openFixture();
  const sandboxes = Array.from({ length: 20 }, () => fixture.sandbox());
  const mine = sandboxes[13] as (typeof sandboxes)[number];
  await fixture.serve(mine.host, 49983, (request, response) => response.end(`envd ${request.method} ${request.url}`));
  const token = `X-Access-Token: ${mine.envdAccessToken}\r\n`;
  const requests: [path: string, lines: string, method: string][] = [
    [`/files?${sign(mine, "a", "read")}`, "", "GET"],
    [`/files?${sign(mine, "a", "read")}&signature_expiration=`, "", "GET"],
    [`/files?${sign(mine, "a", "write", Math.floor(Date.now() / 1000) + 600)}`, "", "POST"],
    [`/files?${sign(mine, "b", "read")}`, address(mine, 49983), "GET"],
    ["/files?path=a", token, "GET"],
    ["/proxy/health", token, "GET"],
  ];
  for (const [index, [path, lines, method]] of requests.entries()) {
    for (const sandbox of sandboxes) fixture.sleep(sandbox);
    const { text } = await ask(fixture, path, lines, method);
    assert.ok(text.endsWith(`envd ${method} ${path.replace("/proxy", "")}`), text);
    assert.deepEqual([fixture.waking.calls.length, fixture.waking.calls[index]?.sandboxID], [index + 1, mine.sandboxID]);
  }
});

void test("the answer for a failed resume is such that no client mistakes it for a removed sandbox or a closed port", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  const failures: [FailureName | "fault" | "drain", string, number, RegExp][] = [
    ["SANDBOX_NOT_FOUND", "it ended", 502, /x-svc-reason: not_found[\s\S]*The sandbox was not found"/],
    ["TOO_MANY_REQUESTS", "too many wait", 429, /\r\nRetry-After: 1\r\n[\s\S]*too many wait"/],
    ["CAPACITY_EXHAUSTED", "the node is full", 502, /x-svc-reason: resume_failed[\s\S]*is paused and could not be resumed: the node is full"/],
    ["drain", "every node drains", 502, /x-svc-reason: draining[\s\S]*is paused and could not be resumed: every node drains"/],
    ["SNAPSHOT_DAMAGED", "its memory image was not found", 502, /Should-Retry: false[\s\S]*resumed: its memory image is missing"/],
    ["SANDBOX_START_FAILED", "Port is not open", 502, /resumed: port is closed"/],
    ["fault", "secret words", 502, /resumed: the node met a fault of its own; its log says which"/],
  ];
  for (const [name, message, status, expected] of failures) {
    fixture.sleep(sandbox);
    fixture.waking.meanwhile = async () => {
      if (name === "fault") throw new TypeError(message);
      if (name === "drain") fail("CAPACITY_EXHAUSTED", message, { details: { reason: "draining" } });
      fail(name, message);
    };
    using client = fixture.dial();
    // The client sends a request that is refused with its body, then another one on the same connection.
    client.send(`POST / HTTP/1.1\r\nHost: a\r\n${address(sandbox, 8080)}Content-Length: 3\r\n\r\nabcGET /next HTTP/1.1\r\nHost: a\r\n\r\n`);
    const received = await client.until((text) => text.includes('"who":"control"'));
    assert.equal(Number(received.slice(9, 12)), status);
    assert.match(received, expected);
    assert.match(received, new RegExp(`"sandboxId":"${sandbox.sandboxID}"`));
    assert.ok(status === 429 || name === "SANDBOX_NOT_FOUND" || !/was not found|port is not open|secret/.test(received), received);
  }
  const text = await fixture.metrics.text();
  for (const [outcome, count] of Object.entries({ resumed: 0, gone: 1, busy: 1, failed: 5 }))
    assert.match(text, new RegExp(`svc_proxy_wakes_total\\{outcome="${outcome}"\\} ${count}\n`));
});

void test("the connection of a client that waits for 100 Continue is closed when its sandbox cannot be resumed", async () => {
  await using fixture = await openFixture();
  const sandbox = fixture.sandbox();
  fixture.waking.meanwhile = async () => fail("CAPACITY_EXHAUSTED", "the node is full");
  fixture.sleep(sandbox);
  const received = await fixture.raw(`PUT / HTTP/1.1\r\nHost: a\r\n${address(sandbox, 8080)}Expect: 100-continue\r\nContent-Length: 3\r\n\r\n`);
  assert.match(received, /^HTTP\/1\.1 502 [\s\S]*Connection: close\r\n/);
});

void test("the number of waiting requests and their time are bounded", async () => {
  await using fixture = await openFixture({ limits: { waiting: 3, waitingPerTarget: 2, wakeMs: 10_000 } });
  const sandbox = fixture.sandbox();
  const other = fixture.sandbox();
  const never = Promise.withResolvers<void>();
  fixture.waking.meanwhile = () => never.promise;
  fixture.sleep(sandbox);
  fixture.sleep(other);
  using waiting = fixture.dial();
  waiting.send(`POST / HTTP/1.1\r\nHost: a\r\n${address(sandbox, 8080)}Content-Length: 6\r\n\r\nabc`);
  const late = [ask(fixture, "/", address(sandbox, 8080)), ask(fixture, "/", address(other, 8080))];
  await until("three wait", async () => (await fixture.metrics.text()).includes("svc_proxy_waiting 3\n") || undefined, 5);
  for (const access of [sandbox, other]) {
    const refused = await ask(fixture, "/", address(access, 8080));
    assert.equal(refused.status, 429);
    assert.match(refused.text, /\r\nRetry-After: 1\r\n/);
  }
  await waiting.until((received) => received.includes("}"));
  for (const text of [waiting.received, ...(await Promise.all(late)).map(({ text }) => text)])
    assert.match(text, /^HTTP\/1\.1 502 [\s\S]*x-svc-reason: resume_failed[\s\S]*it was not back within 10 s/);
  assert.match(await fixture.metrics.text(), /svc_proxy_waiting 0\n/);
  // The client sends the rest of the refused body, then the next request.
  waiting.send("defGET / HTTP/1.1\r\nHost: a\r\n\r\n");
  await waiting.until((received) => received.includes('"who":"control"'));
  never.resolve();
});
