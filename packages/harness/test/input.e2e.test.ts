// The control plane under good and bad input: typed refusals that change nothing, pages, idempotency, time to live.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { connectSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox, deleteSandbox, getSandbox, listSandboxes, listSandboxesV1, refreshSandbox, setSandboxTimeout } from "@svc/contract/sandbox.ts";
import { leftovers } from "../src/leftovers.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { until } from "../src/until.ts";

type Body = { code: number; message: string; error_code: string; reason?: string; endedAt?: string };

void describe("the control plane", needs("root", "envd", "base", "runc"), () => {
  let node: TestNode;
  before(async () => {
    node = await startNode({ runtime: "runc", flags: ["--sandbox.max_sandboxes=6"] });
  });
  after(() => node[Symbol.asyncDispose]());

  async function ask(method: string, path: string, body?: unknown, headers: Record<string, string> = {}) {
    const text =
      body === undefined || typeof body === "string" || body instanceof Uint8Array
        ? (body as string | Uint8Array<ArrayBuffer> | undefined)
        : JSON.stringify(body);
    const response = await fetch(`${node.url}${path}`, {
      method,
      headers: { "x-api-key": node.apiKey, "content-type": "application/json", ...headers },
      ...(text === undefined ? {} : { body: text }),
    });
    const answer = await response.text();
    return { status: response.status, body: (answer === "" ? {} : JSON.parse(answer)) as Body, headers: response.headers };
  }

  void test("bad input is refused with a typed error that names the member, and nothing is created", async () => {
    const good = { templateID: "base" };
    const cases: [unknown, number, RegExp][] = [
      ["{", 400, /not valid JSON/],
      [Uint8Array.from(Buffer.from('{"templateID":"\xff"}', "latin1")), 400, /not valid JSON in UTF-8/],
      ["[]", 400, /JSON object/],
      ['"base"', 400, /JSON object/],
      [{}, 400, /templateID/],
      [{ templateID: 7 }, 400, /templateID/],
      [{ templateID: "" }, 400, /templateID/],
      [{ templateID: "no-such-template" }, 404, /^template 'no-such-template' not found; `svc template list` lists/],
      [{ ...good, timeout: "60" }, 400, /timeout/],
      [{ ...good, timeout: 0 }, 400, /timeout/],
      [{ ...good, timeout: -1 }, 400, /timeout/],
      [{ ...good, timeout: 1.5 }, 400, /timeout/],
      [{ ...good, timeout: 1e300 }, 400, /timeout/],
      [{ ...good, timeout: 86_401 }, 400, /at most 86400 seconds/],
      [{ ...good, timeout: 1_000_000_000 }, 400, /at most 86400 seconds/],
      [{ ...good, metadata: { a: 1 } }, 400, /metadata/],
      [{ ...good, metadata: Object.fromEntries(Array.from({ length: 65 }, (_, i) => [`k${i}`, "v"])) }, 400, /metadata: at most 64/],
      [{ ...good, metadata: { a: "x".repeat(20_000) } }, 400, /metadata: at most/],
      [{ ...good, envVars: { "A B": "x" } }, 400, /^envVars\.A B: a name has letters, digits and _ only/],
      [{ ...good, metadata: { "": "x" } }, 400, /^metadata: expected names of at least 1 characters, got ""/],
      [`{"templateID":"base","metadata":{"__\\u0070roto__":"x"}}`, 400, /expected other names of members than "__proto__"/],
      [{ ...good, metadata: JSON.parse('{"__proto__": "x"}') }, 400, /expected other names of members than "__proto__"/],
      [{ ...good, network: { egressProxy: {} } }, 400, /^network.egressProxy.address/],
      [{ ...good, envVars: { A: "x\u0000y" } }, 400, /envVars/],
      [{ ...good, network: { allowPublicTraffic: "no" } }, 400, /network/],
      [{ ...good, network: { denyOut: ["example.com"] } }, 400, /denyOut/],
      [{ ...good, network: { allowOut: ["example.com"] } }, 400, /allowOut.*denyOut/],
      [{ ...good, network: { egressProxy: { address: "proxy" } } }, 400, /egressProxy.address: "proxy" is not the address of a SOCKS5 proxy/],
      [{ ...good, network: { egressProxy: { address: "a.test:1", password: "x" } } }, 400, /egressProxy.password: needs a username/],
      [{ ...good, network: { egressProxy: { address: "a.test:1", username: "é".repeat(200) } } }, 400, /egressProxy.username: expected at most 255 bytes/],
      [{ ...good, network: { httpsPorts: [49983] } }, 400, /httpsPorts.*envd's own port/],
      [{ ...good, network: { dnsServers: ["dns.google"] } }, 400, /^network.dnsServers.0.: "dns.google": expected an IPv4 address/],
      [{ ...good, network: { rules: { "1.1.1.1": [] } } }, 400, /^network.rules: "1.1.1.1": rules apply to hosts by name/],
      [
        { ...good, network: { rules: { "a.test": [{ transform: { headers: { "a b": "x" } } }] } } },
        400,
        /network.rules.a.test.0.transform.headers.*is not the name of a header/,
      ],
      [{ ...good, network: { surprise: true } }, 400, /surprise/],
      [{ ...good, network: { maskRequestHost: "a\r\nb: c" } }, 400, /maskRequestHost/],
      [{ ...good, autoPause: "yes" }, 400, /autoPause/],
      [{ ...good, autoResume: { enabled: true } }, 400, /autoResume: needs autoPause/],
      [{ ...good, autoPause: true, autoPauseMemory: false, autoResume: { enabled: true } }, 400, /autoPauseMemory must not be false/],
      [{ ...good, volumeMounts: [{ name: "v", path: "/v" }] }, 404, /^volumeMounts: volume 'v' was not found/],
      [{ ...good, volumeMounts: [{ name: "a b", path: "/v" }] }, 400, /volumeMounts/],
    ];
    for (const [body, status, message] of cases) {
      for (const path of ["/v2/sandboxes", "/sandboxes"]) {
        const answer = await ask("POST", path, body);
        assert.equal(answer.status, status, `${path} ${JSON.stringify(body).slice(0, 100)}: ${answer.body.message}`);
        assert.equal(answer.body.code, status);
        assert.match(answer.body.message, message);
      }
    }
    assert.equal((await ask("POST", "/v2/sandboxes", { ...good, metadata: { a: "x".repeat(2_000_000) } })).status, 413);
    assert.equal((await ask("POST", "/v2/sandboxes", good, { "idempotency-key": "NOT/ALLOWED" })).status, 400);
    for (const query of ["limit=0", "limit=101", "limit=x", "state=ended", "order=up", "startedAfter=yesterday", "nextToken=nonsense"]) {
      assert.equal((await ask("GET", `/v2/sandboxes?${query}`)).status, 400, query);
    }
    assert.deepEqual(leftovers(node.home).directories, []);
  });

  void test("a sandbox that does not exist is a 404 whose body says so, on every route", async () => {
    for (const [method, path, body] of [
      ["GET", "", undefined],
      ["DELETE", "", undefined],
      ["POST", "/connect", { timeout: 10 }],
      ["POST", "/timeout", { timeout: 10 }],
      ["POST", "/refreshes", {}],
    ] as const) {
      for (const id of ["inosuchsandbox000000", "..%2f..", "%00", "a".repeat(60)]) {
        const answer = await ask(method, `/sandboxes/${id}${path}`, body);
        assert.deepEqual([answer.status, answer.body.code], [404, 404], `${method} ${id}${path}`);
      }
    }
    assert.equal((await ask("PATCH", "/sandboxes")).status, 404);
  });

  void test("invalid target ports, and half a pair of routing headers, are refused with 400", async () => {
    const { sandboxID } = await node.call(createSandbox, { templateID: "base" });
    for (const port of ["0", "65536", "049983", "-1", "+80", "8e1", "0x50", "abc", " "]) {
      const response = await fetch(`${node.url}/proxy/`, { headers: { "x-svc-sandbox-id": sandboxID, "x-svc-target-port": port } });
      assert.equal(response.status, 400, `port ${port}`);
      assert.equal(((await response.json()) as Body).code, 400);
    }
    assert.equal((await fetch(`${node.url}/proxy/`, { headers: { "x-svc-sandbox-id": sandboxID } })).status, 400);
    assert.equal((await fetch(`${node.url}/proxy/`, { headers: { "e2b-sandbox-port": "80" } })).status, 400);
    await node.call(deleteSandbox, { sandboxID });
  });

  void test("a create repeated under its Idempotency-Key gets the same answer, also after kill -9, and another body is refused", async () => {
    const headers = { "idempotency-key": "rollout-1" };
    const first = await ask("POST", "/v2/sandboxes", { templateID: "base", timeout: 500 }, headers);
    assert.equal(first.status, 201);
    await node.restart("SIGKILL");
    const second = await ask("POST", "/v2/sandboxes", { templateID: "base", timeout: 500 }, headers);
    assert.equal(second.status, 201);
    assert.deepEqual(second.body, first.body);
    assert.equal((await node.call(listSandboxes, {})).length, 1);
    assert.equal((await ask("POST", "/v2/sandboxes", { templateID: "base", timeout: 501 }, headers)).status, 422);
    let statuses: number[] = [];
    // If the two requests do not overlap, one is a create and the other its repetition.
    for (let round = 0; round < 5 && !statuses.includes(409); round++) {
      const headers = { "idempotency-key": `rollout-2-${round}` };
      const racing = await Promise.all([1, 2].map(() => ask("POST", "/v2/sandboxes", { templateID: "base" }, headers)));
      statuses = racing.map(({ status }) => status).sort();
      if (!statuses.includes(409)) assert.deepEqual(racing[0]?.body, racing[1]?.body);
    }
    assert.deepEqual(statuses, [201, 409]);
    for (const { sandboxID } of await node.call(listSandboxes, {})) await node.call(deleteSandbox, { sandboxID });
  });

  void test("sandboxes are listed page by page in a stable order, filtered, and refused above the node's limit", async () => {
    const made: string[] = [];
    for (let i = 0; i < 6; i++)
      made.push((await node.call(createSandbox, { templateID: "base", metadata: { parity: i % 2 === 0 ? "even" : "odd" } })).sandboxID);
    const refused = await ask("POST", "/v2/sandboxes", { templateID: "base" });
    assert.deepEqual([refused.status, refused.headers.get("retry-after")], [429, "5"]);
    const pages: string[][] = [];
    let nextToken: string | undefined;
    do {
      const page = await node.callForAnswer(listSandboxes, { order: "asc", limit: 4, ...(nextToken === undefined ? {} : { nextToken }) });
      pages.push(page.value.map((each) => each.sandboxID));
      nextToken = page.headers.get("x-next-token") ?? undefined;
    } while (nextToken !== undefined);
    assert.deepEqual(pages, [made.slice(0, 4), made.slice(4)]);
    assert.deepEqual(
      (await node.call(listSandboxes, {})).map((each) => each.sandboxID),
      [...made].reverse(),
    );
    const odd = await node.call(listSandboxesV1, { metadata: "parity=odd" });
    assert.equal(odd.length, 3);
    assert.equal((await node.call(listSandboxes, { state: "paused" })).length, 0);
    assert.equal((await node.call(listSandboxes, { template: "host" })).length, 0);
    assert.equal((await node.call(listSandboxes, { startedAfter: odd[0]?.startedAt ?? "" })).length < 6, true);
    await Promise.all(made.map((sandboxID) => node.call(deleteSandbox, { sandboxID })));
    assert.deepEqual(leftovers(node.home).directories, []);
  });

  void test("timeout sets the remaining time, connect and refreshes only extend it, and at its end the reason is reported", async () => {
    const { sandboxID } = await node.call(createSandbox, { templateID: "base", timeout: 100 });
    const leftS = async () => (Date.parse((await node.call(getSandbox, { sandboxID })).endAt) - Date.now()) / 1000;
    const about = (left: number, asked: number) => assert.ok(Math.abs(left - asked) < 30, `${left} s left, asked ${asked}`);
    about(await leftS(), 100);
    await node.call(connectSandbox, { sandboxID, timeout: 10 });
    about(await leftS(), 100);
    await node.call(refreshSandbox, { sandboxID, duration: 600 });
    about(await leftS(), 600);
    await node.call(refreshSandbox, { sandboxID });
    about(await leftS(), 600);
    await node.call(connectSandbox, { sandboxID, timeout: 1000 });
    about(await leftS(), 1000);
    const fromMs = Date.now();
    await node.call(setSandboxTimeout, { sandboxID, timeout: 2 });
    const end = await until("the end of its time", async () => {
      const answer = await ask("GET", `/sandboxes/${sandboxID}`);
      return answer.status === 404 ? answer.body : undefined;
    });
    assert.equal(end.reason, "timeout");
    assert.ok(Date.parse(end.endedAt ?? "") >= fromMs + 2000 - 5, `${end.endedAt} is less than 2 s after ${new Date(fromMs).toISOString()}`);
  });
});
