// A gateway and a node that know each other by certificates: clients notice nothing, strangers get nothing, and certificates change under load.
import assert from "node:assert/strict";
import { request as httpsRequest } from "node:https";
import { after, before, describe, test } from "node:test";
import { connect } from "node:tls";
import { listNodes } from "@svc/contract/nodes.ts";
import { deleteSandbox, getSandbox, listSandboxes } from "@svc/contract/sandbox.ts";
import { startGateway, type TestGateway } from "@svc/harness/gateway.ts";
import { needs } from "@svc/harness/needs.ts";
import { startNode, type TestNode } from "@svc/harness/node.ts";
import { makePeerCerts } from "@svc/harness/peer-certs.ts";
import { until } from "@svc/harness/until.ts";
import { roleName } from "@svc/kit/peers/roles.ts";
import { Sandbox } from "e2b";

const KEY = "k".repeat(40);
const ENV = { SVC_API_KEY: KEY, SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED: "s".repeat(40) };
const BODY_BYTES = 5_000_000;
const CLIENTS = 6;

type Answered = { readonly status: number; readonly body: string };

void describe("a gateway and a node with certificates", needs("root", "envd", "base", "runc"), () => {
  const certs = makePeerCerts();
  const others = makePeerCerts();
  const ofNode = certs.issue("node", "n1");
  const ofGateway = certs.issue("gateway", "g1");
  let node: TestNode;
  let gateway: TestGateway;

  before(async () => {
    node = await startNode({ runtime: "runc", isSecure: true, env: ENV, flags: [`--peer-certs=${ofNode}`] });
    gateway = await startGateway({ nodes: [node.url], apiKey: KEY, flags: [`--peer-certs=${ofGateway}`] });
    await until("the node is ready", async () => ((await gateway.call(listNodes, {}))[0]?.status === "ready" ? true : undefined));
  });
  after(async () => {
    await gateway[Symbol.asyncDispose]();
    await node[Symbol.asyncDispose]();
    for (const each of [certs, others]) each[Symbol.dispose]();
  });

  /** Asks the node's port, with the certificate in this directory or with none. */
  function ask(path: string, { directory, headers = {} }: { directory?: string; headers?: Record<string, string> } = {}): Promise<Answered> {
    const { ca } = certs.files(ofNode);
    const own = directory === undefined ? {} : { ...certs.files(directory), ca };
    return new Promise((resolve, reject) => {
      const options = { ca, ...own, servername: roleName("node"), headers, agent: false };
      const sent = httpsRequest(`${node.url}${path}`, options, (response) => {
        let body = "";
        response.setEncoding("utf8").on("data", (text: string) => (body += text));
        response.once("end", () => resolve({ status: response.statusCode ?? 0, body })).once("error", reject);
      });
      sent.once("error", reject).end();
    });
  }

  void test("commands, files and ports of a sandbox work through the gateway as without certificates", async () => {
    const connection = { apiUrl: gateway.url, sandboxUrl: gateway.url, apiKey: KEY };
    const sandbox = await Sandbox.create("base", { ...connection, timeoutMs: 600_000 });
    assert.equal((await sandbox.commands.run("echo over TLS")).stdout, "over TLS\n");
    const bytes = Buffer.alloc(BODY_BYTES, "svc").buffer as ArrayBuffer;
    await sandbox.files.write("/tmp/large", bytes);
    const back = await sandbox.files.read("/tmp/large", { format: "bytes" });
    assert.equal(Buffer.compare(Buffer.from(back), Buffer.from(bytes)), 0);
    await sandbox.commands.run("cd /tmp && python3 -m http.server 8123", { background: true });
    const large = await until("the port answers", async () => {
      const answer = await fetch(`${gateway.url}/large`, { headers: { host: `8123-${sandbox.sandboxId}.svc.localhost`, ...routing(sandbox.sandboxId, 8123) } });
      return answer.status === 200 ? new Uint8Array(await answer.arrayBuffer()) : void (await answer.body?.cancel());
    });
    assert.equal(large.length, BODY_BYTES);
    assert.deepEqual(
      (await gateway.call(listSandboxes, {})).map(({ sandboxID }) => sandboxID),
      [sandbox.sandboxId],
    );
    await sandbox.kill();
  });

  void test("a caller without a certificate reads health and metrics of the node, and nothing else", async () => {
    assert.equal((await ask("/health")).status, 204);
    assert.match((await ask("/metrics")).body, /svc_peer_strangers_total\{reason="none"\} [1-9]/);
    for (const [path, headers] of [
      ["/v2/sandboxes", { "x-api-key": KEY }],
      ["/", {}],
      ["/health?x=1", {}],
      ["/health", routing("i1234", 80)],
    ] as const) {
      const { status, body } = await ask(path, { headers });
      assert.deepEqual([status, (JSON.parse(body) as { error_code: string }).error_code], [403, "ACCESS_DENIED"], path);
      assert.match(body, /expects a certificate of its deployment, signed by .*, and got none: give the caller one with --peer-certs DIR/);
    }
    const answer = await ask("/v2/sandboxes", { headers: { "x-api-key": KEY }, directory: ofGateway });
    assert.equal(answer.status, 200);
    // A certificate does not replace the key.
    assert.equal((await ask("/v2/sandboxes", { directory: ofGateway })).status, 401);
    const plain = await fetch(`${node.url.replace("https:", "http:")}/health`);
    assert.deepEqual([plain.status, /This port speaks TLS/.test(await plain.text())], [400, true]);
  });

  void test("a certificate of another authority is refused, and both sides are named", async () => {
    const stranger = others.issue("gateway", "intruder");
    const { status, body } = await ask("/v2/sandboxes", { headers: { "x-api-key": KEY }, directory: stranger });
    assert.equal(status, 403);
    assert.match(
      body,
      /signed by .*svc deployment authority \w+.*, and got one of .*intruder.* for gateway\.svc\.internal, signed by .*svc deployment authority \w+/,
    );
  });

  void test("a gateway with a wrong certificate, or at a node with a wrong one, says what it got, what it expected and what to do", async () => {
    const reasonAt = async (flags: readonly string[], url = node.url) => {
      await using other = await startGateway({ nodes: [url], apiKey: KEY, flags });
      return await until("the gateway says why", async () => {
        const [{ status, reason = "" } = {}] = await other.call(listNodes, {});
        return status === "unhealthy" && reason.includes("svc certs") ? reason : undefined;
      });
    };
    const foreign = await reasonAt([`--peer-certs=${others.issue("gateway", "other")}`]);
    assert.match(
      foreign,
      /the server at https:\/\/127\.0\.0\.1:\d+ presented a certificate of .*n1.* for node\.svc\.internal, signed by .* expected one signed by .*svc deployment authority/,
    );
    await using wrong = await startNode({ runtime: "runc", isSecure: true, env: ENV, flags: [`--peer-certs=${certs.issue("indexer", "misplaced")}`] });
    assert.match(
      await reasonAt([`--peer-certs=${ofGateway}`], wrong.url),
      /presented a certificate of .*misplaced.* for indexer\.svc\.internal, .*; expected one for 127\.0\.0\.1 or node\.svc\.internal; issue it with svc certs issue node --host 127\.0\.0\.1/,
    );
    await assert.rejects(
      startGateway({ nodes: [node.url], apiKey: KEY }),
      /this process has no certificate to show there: expected also peers\.certs \(--peer-certs DIR\)/,
    );
  });

  void test("no request is lost while the certificates and their authority are replaced", async () => {
    const sandbox = await Sandbox.create("base", { apiUrl: gateway.url, sandboxUrl: gateway.url, apiKey: KEY, timeoutMs: 600_000 });
    const { sandboxId: sandboxID } = sandbox;
    let isOver = false;
    const counts = { asked: 0, failed: [] as string[] };
    const clients = Array.from({ length: CLIENTS }, async (_, index) => {
      while (!isOver) {
        counts.asked++;
        const work = index % 2 === 0 ? gateway.call(getSandbox, { sandboxID }) : sandbox.files.write(`/tmp/f${index}`, "x".repeat(10_000));
        await work.catch((error: unknown) => counts.failed.push(String(error)));
      }
    });
    const serial = () => servedSerial(node.port, certs.files(ofGateway));
    const replace = async (directory: string) => {
      const readings = () => [node.log(), gateway.log()].join("").split("the certificates of peers were read again").length;
      const before = readings();
      certs.reissue(directory);
      await until("the new certificate is read", () => (readings() > before ? true : undefined));
    };
    const first = await serial();
    await replace(ofNode);
    const second = await serial();
    certs.rotate();
    // The node trusts only the old authority while the gateway's certificate is of the new one already.
    await replace(ofGateway);
    // A connection that is opened now must be accepted, which those in use do not show.
    await serial();
    await replace(ofNode);
    certs.dropOld();
    await replace(ofNode);
    await replace(ofGateway);
    assert.equal(new Set([first, second, await serial()]).size, 3);
    isOver = true;
    await Promise.all(clients);
    assert.deepEqual(counts.failed, []);
    assert.ok(counts.asked > CLIENTS);
    await gateway.call(deleteSandbox, { sandboxID });
  });
});

const routing = (sandboxID: string, port: number) => ({ "e2b-sandbox-id": sandboxID, "e2b-sandbox-port": String(port) });

/** The serial number of the certificate that a new connection gets. */
function servedSerial(port: number, own: { readonly cert: string; readonly key: string; readonly ca: string }): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: "127.0.0.1", port, servername: roleName("node"), ...own }, () => {
      resolve(socket.getPeerCertificate().serialNumber);
      socket.destroy();
    });
    socket.once("error", reject);
  });
}
