// The credential matrix of the specification, at a node and at a gateway: correct, wrong, missing and foreign credentials on each route.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, describe, test } from "node:test";
import type { SandboxAnswer } from "@svc/contract/fields.ts";
import { connectSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox, createSandboxV1, deleteSandbox, getSandbox, listSandboxes } from "@svc/contract/sandbox.ts";
import { needs } from "../src/needs.ts";
import type { TestNode } from "../src/node.ts";
import { until } from "../src/until.ts";

const PORT = 8931;
const KEY = `key-${"k".repeat(40)}`;
const OTHER_KEY = `key-${"o".repeat(40)}`;
const SEED = "first-seed-".repeat(6);
const OTHER_SEED = "other-seed-".repeat(6);

type Headers = Record<string, string>;

/** The server that clients connect to. */
export type Entry = Pick<TestNode, "url" | "log" | "call"> & {
  restart(signal: NodeJS.Signals, options?: { readonly env: Readonly<Record<string, string>> }): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

/** `open` starts the deployment with this environment. */
export function credentialsSuite(name: "node" | "gateway", open: (env: Readonly<Record<string, string>>) => Promise<Entry>): void {
  void describe(`credentials at a ${name}`, needs("root", "envd", "base", "runc"), () => {
    let node: Entry;
    /** A secure private sandbox, an open public one, and another secure private one. */
    let locked: SandboxAnswer;
    let bare: SandboxAnswer;
    let other: SandboxAnswer;

    before(async () => {
      node = await open({ SVC_API_KEY: KEY, SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED: SEED });
      const create = (input: object) => node.call(createSandboxV1, { templateID: "base", timeout: 3000, ...input });
      [locked, bare, other] = await Promise.all([
        create({ secure: true, network: { allowPublicTraffic: false } }),
        create({}),
        create({ secure: true, network: { allowPublicTraffic: false } }),
      ]);
      for (const sandbox of [locked, bare, other]) await serveHeaders(sandbox);
    });
    after(async () => {
      await node[Symbol.asyncDispose]();
    });

    const to = (sandbox: SandboxAnswer, port: number, extra: Headers = {}): Headers => ({
      "x-svc-sandbox-id": sandbox.sandboxID,
      "x-svc-target-port": String(port),
      ...extra,
    });
    const get = (path: string, headers: Headers = {}) => fetch(`${node.url}${path}`, { headers });

    /** Starts an application inside that answers with the headers it received. */
    async function serveHeaders(sandbox: SandboxAnswer): Promise<void> {
      const script = `import http.server,json
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        b=json.dumps({k.lower():v for k,v in self.headers.items()}).encode(); self.send_response(200); self.send_header("content-length",str(len(b))); self.end_headers(); self.wfile.write(b)
    def log_message(self,*a): pass
http.server.ThreadingHTTPServer(("0.0.0.0",${PORT}),H).serve_forever()`;
      const message = Buffer.from(JSON.stringify({ process: { cmd: "python3", args: ["-c", script] }, stdin: false }));
      const envelope = Buffer.alloc(5);
      envelope.writeUInt32BE(message.length, 1);
      const token: Headers = sandbox.envdAccessToken === undefined ? {} : { "x-access-token": sandbox.envdAccessToken };
      const response = await fetch(`${node.url}/process.Process/Start`, {
        method: "POST",
        headers: to(sandbox, 49983, { "content-type": "application/connect+json", "connect-protocol-version": "1", ...token }),
        body: Buffer.concat([envelope, message]),
      });
      assert.equal(response.status, 200);
      const traffic: Headers = sandbox.trafficAccessToken == null ? {} : { "svc-traffic-access-token": sandbox.trafficAccessToken };
      await until("the application inside", async () => ((await get("/proxy/", to(sandbox, PORT, traffic))).status === 200 ? true : undefined));
    }

    void test("the API key opens every control-plane route, and a wrong, missing or other credential opens none", async () => {
      const routes: [string, string][] = [
        ["GET", "/sandboxes"],
        ["GET", "/v2/sandboxes"],
        ["POST", "/sandboxes"],
        ["POST", "/v2/sandboxes"],
        ["GET", `/sandboxes/${locked.sandboxID}`],
        ["POST", `/sandboxes/${locked.sandboxID}/timeout`],
        ["POST", `/sandboxes/${locked.sandboxID}/connect`],
        ["DELETE", `/sandboxes/${locked.sandboxID}`],
        ["GET", "/templates"],
        ["GET", "/no/such/route"],
      ];
      const wrong: Headers[] = [
        {},
        { "x-api-key": "" },
        { "x-api-key": `${KEY}x` },
        { "x-api-key": locked.envdAccessToken ?? "" },
        { "x-api-key": locked.trafficAccessToken ?? "" },
        { authorization: `Bearer ${KEY}` },
        { "x-access-token": KEY },
        { "svc-traffic-access-token": KEY },
      ];
      for (const [method, path] of routes) {
        for (const headers of wrong) {
          const response = await fetch(`${node.url}${path}`, { method, headers });
          assert.equal(response.status, 401, `${method} ${path} with ${JSON.stringify(headers)}`);
          const body = (await response.json()) as { code: number; message: string };
          assert.equal(body.code, 401);
          assert.match(body.message, /X-API-Key/);
        }
      }
      assert.equal((await get("/health")).status, 204);
      assert.equal((await get("/metrics")).status, name === "node" ? 200 : 401);
      assert.equal((await get("/sandboxes", { "x-api-key": KEY })).status, 200);
    });

    void test("an application of a private sandbox requires that sandbox's traffic token, which it does not receive", async () => {
      const ask = (headers: Headers, path = "/proxy/a") => get(path, to(locked, PORT, headers));
      for (const headers of [
        {},
        { "svc-traffic-access-token": "x" },
        { "svc-traffic-access-token": other.trafficAccessToken ?? "" },
        { "svc-traffic-access-token": locked.envdAccessToken ?? "" },
        { "svc-traffic-access-token": KEY },
        { "x-api-key": KEY },
        { "x-access-token": locked.envdAccessToken ?? "" },
        { authorization: `Bearer ${locked.trafficAccessToken}` },
      ] as Headers[]) {
        const response = await ask(headers);
        assert.equal(response.status, 403, JSON.stringify(headers));
        assert.match(((await response.json()) as { message: string }).message, /traffic-access-token/);
      }
      for (const header of ["svc-traffic-access-token", "e2b-traffic-access-token"]) {
        const response = await ask({ [header]: locked.trafficAccessToken ?? "" });
        assert.equal(response.status, 200);
        const seen = (await response.json()) as Headers;
        assert.equal(JSON.stringify(seen).includes(locked.trafficAccessToken ?? "-"), false);
        for (const name of Object.keys(seen)) assert.doesNotMatch(name, /traffic-access-token|sandbox-id|target-port|sandbox-port/);
      }
    });

    void test("an application of a public sandbox needs no credential; it receives X-API-Key unless it is the platform's", async () => {
      const seen = async (headers: Headers) => (await (await get("/proxy/", to(bare, PORT, headers))).json()) as Headers;
      assert.equal((await seen({}))["x-api-key"], undefined);
      assert.equal((await seen({ "x-api-key": "mine" }))["x-api-key"], "mine");
      assert.equal((await seen({ "x-api-key": `${KEY}x` }))["x-api-key"], `${KEY}x`);
      assert.equal((await seen({ "x-api-key": KEY }))["x-api-key"], undefined);
      assert.equal((await seen({ authorization: "Bearer app" }))["authorization"], "Bearer app");
    });

    void test("envd of a secure sandbox requires that sandbox's token on every path, and envd of an open one none", async () => {
      const wrong: Headers[] = [
        {},
        { "x-access-token": "x" },
        { "x-access-token": other.envdAccessToken ?? "" },
        { "x-access-token": locked.trafficAccessToken ?? "" },
        { "x-access-token": KEY },
        { "x-api-key": KEY },
        { authorization: `Bearer ${locked.envdAccessToken}` },
      ];
      for (const path of [
        "/proxy/health",
        "/health",
        "/proxy/files?path=/etc/hostname",
        "/files?path=/etc/hostname",
        "/envs",
        "/proxy/metrics",
        "/proxy/no/such",
      ]) {
        for (const headers of wrong) assert.equal((await get(path, to(locked, 49983, headers))).status, 401, `${path} with ${JSON.stringify(headers)}`);
      }
      const right = { "x-access-token": locked.envdAccessToken ?? "" };
      assert.equal((await get("/proxy/health", to(locked, 49983, right))).status, 204);
      assert.equal((await get("/files?path=/etc/hostname", to(locked, 49983, right))).status, 200);
      assert.equal((await get("/proxy/health", to(bare, 49983))).status, 204);
      assert.equal((await get("/envs", to(bare, 49983))).status, 200);
    });

    void test("a signed URL opens only its own file of its own sandbox", async () => {
      const sign = (token: string, path: string) => `v1_${createHash("sha256").update(`${path}:read::${token}`).digest("base64").replace(/=+$/, "")}`;
      const ask = (path: string, signature: string, headers: Headers = {}) =>
        get(`/files?path=${encodeURIComponent(path)}&signature=${encodeURIComponent(signature)}`, headers);
      const good = sign(locked.envdAccessToken ?? "", "/etc/hostname");
      const named = async (response: Response) => (await response.text()).trim();
      assert.equal(await named(await ask("/etc/hostname", good)), locked.sandboxID);
      assert.equal(await named(await ask("/etc/hostname", good, to(locked, 49983))), locked.sandboxID);
      assert.equal((await ask("/etc/hostname", good, to(other, 49983))).status, 401);
      for (const response of [
        await ask("/etc/passwd", good),
        await ask("/etc/hostname", sign(KEY, "/etc/hostname")),
        await ask("/etc/hostname", good, to(locked, 49983, { "x-access-token": "wrong" })),
      ]) {
        assert.ok([400, 401, 502].includes(response.status), String(response.status));
      }
    });

    void test("internal routes of envd do not exist for clients, in any spelling", async () => {
      const right = { "x-access-token": locked.envdAccessToken ?? "" };
      for (const path of ["/init", "/proxy/init", "//init", "/%69nit", "/proxy/./init", "/relay?port=22", "/freeze", "/fsfreeze"]) {
        for (const method of ["GET", "POST"]) {
          const response = await fetch(`${node.url}${path}`, { method, headers: to(locked, 49983, right) });
          assert.equal(response.status, 404, `${method} ${path}`);
        }
      }
    });

    void test("no secret appears in the log", () => {
      for (const secret of [KEY, SEED, locked.envdAccessToken, locked.trafficAccessToken, other.envdAccessToken])
        assert.equal(node.log().includes(secret ?? "-"), false);
    });

    void test("after a restart with another API key the old key is refused, and the tokens of sandboxes stay valid", async () => {
      await node.restart("SIGTERM", { env: { SVC_API_KEY: OTHER_KEY } });
      assert.equal((await get("/sandboxes", { "x-api-key": KEY })).status, 401);
      const detail = (await (await get(`/sandboxes/${locked.sandboxID}`, { "x-api-key": OTHER_KEY })).json()) as SandboxAnswer;
      assert.equal(detail.envdAccessToken, locked.envdAccessToken);
      assert.equal(detail.trafficAccessToken, locked.trafficAccessToken);
      assert.equal((await get("/health", to(locked, 49983, { "x-access-token": locked.envdAccessToken ?? "" }))).status, 204);
      assert.equal((await get("/", to(locked, PORT, { "svc-traffic-access-token": locked.trafficAccessToken ?? "" }))).status, 200);
    });

    void test("after a restart with another seed both old tokens are refused, by the proxy and by envd, and new ones are issued", async () => {
      await node.restart("SIGTERM", { env: { SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED: OTHER_SEED } });
      const fresh = await node.call(getSandbox, { sandboxID: locked.sandboxID });
      assert.notEqual(fresh.envdAccessToken, locked.envdAccessToken);
      const statusOf = async (port: number, headers: Headers) => (await get("/health", to(locked, port, headers))).status;
      assert.equal(await statusOf(49983, { "x-access-token": locked.envdAccessToken ?? "" }), 401);
      assert.equal(await statusOf(PORT, { "svc-traffic-access-token": locked.trafficAccessToken ?? "" }), 403);
      assert.equal(await statusOf(49983, { "x-access-token": fresh.envdAccessToken ?? "" }), 204);
      assert.equal(await statusOf(PORT, { "svc-traffic-access-token": fresh.trafficAccessToken ?? "" }), 200);
    });

    void test("a sandbox that was adopted after a restart still has the variables it was created with", async () => {
      const made = await node.call(createSandbox, { templateID: "base", envVars: { MINE: "kept" } });
      await node.restart("SIGKILL");
      const { envdAccessToken } = await node.call(getSandbox, { sandboxID: made.sandboxID });
      const response = await get("/envs", to(made, 49983, { "x-access-token": envdAccessToken ?? "" }));
      assert.equal(((await response.json()) as Headers)["MINE"], "kept");
    });

    void test("connect returns the same tokens as create, and a create of the new generation is always secure", async () => {
      const made = await node.call(createSandbox, { templateID: "base" });
      assert.match(made.envdAccessToken ?? "", /^[0-9a-f]{64}$/);
      assert.equal(made.trafficAccessToken ?? undefined, undefined);
      assert.equal((await node.call(connectSandbox, { sandboxID: made.sandboxID })).envdAccessToken, made.envdAccessToken);
      await node.call(deleteSandbox, { sandboxID: made.sandboxID });
      assert.equal(
        (await node.call(listSandboxes, {})).some((each) => each.sandboxID === made.sandboxID),
        false,
      );
    });
  });
}
