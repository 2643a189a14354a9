// The console refuses requests from applications in sandboxes, from other pages, ports and host names, and with only half of a session.
import assert from "node:assert/strict";
import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { call } from "@svc/contract/call.ts";
import { SvcClient } from "@svc/contract/client.ts";
import { createConsoleLink } from "@svc/contract/console-link.ts";
import { createSandbox } from "@svc/contract/sandbox.ts";
import { needs } from "@svc/harness/needs.ts";
import { startNode, type TestNode } from "@svc/harness/node.ts";
import { until } from "@svc/harness/until.ts";
import type { Page } from "playwright-core";
import { CHROMIUM, openBrowser, type TestBrowser } from "./browser.ts";

const need = needs("root", "runsc", "envd", "base", CHROMIUM);
let node: TestNode;
let browser: TestBrowser;
let page: Page;
/** The console's address as a person opens it: localhost, which the sandboxes' host names are below. */
let own: string;
let application: { readonly sandboxID: string; readonly origin: string };

const SERVE = `
import http.server
class App(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("content-type", "text/html"); self.end_headers()
        self.wfile.write(b"<title>application</title>")
http.server.HTTPServer(("0.0.0.0", 3000), App).serve_forever()
`;

before(async () => {
  if (need.skip !== false) return;
  [node, browser] = await Promise.all([startNode({ runtime: "gvisor" }), openBrowser()]);
  own = `http://localhost:${node.port}`;
  page = await browser.signedIn({ url: own, apiKey: node.apiKey });
  const client = new SvcClient({ baseURL: node.url, apiKey: node.apiKey });
  const { sandboxID } = await node.call(createSandbox, { templateID: "base" });
  const envd = client.envd(await client.get(sandboxID));
  for await (const event of envd.start({ cmd: "python3", args: ["-c", SERVE] })) if (event.type === "start") break;
  envd.close();
  application = { sandboxID, origin: `http://3000-${sandboxID}.localhost:${node.port}` };
});
after(async () => {
  await browser?.[Symbol.asyncDispose]();
  await node?.[Symbol.asyncDispose]();
});

type Sent = { readonly status: number; readonly headers: Record<string, string | string[] | undefined>; readonly body: string };

/** Sends a request as any program could, with headers that a browser would not let a page set. */
function send(path: string, headers: Record<string, string>, method = "GET", body = ""): Promise<Sent> {
  return new Promise((resolve, reject) => {
    const sent = request({ host: "127.0.0.1", port: node.port, path, method, headers: { host: `localhost:${node.port}`, ...headers } }, (response) => {
      let text = "";
      response.on("data", (chunk) => {
        text += String(chunk);
      });
      response.on("end", () => resolve({ status: response.statusCode ?? 0, headers: response.headers, body: text }));
    });
    sent.on("error", reject);
    sent.on("upgrade", (response, socket) => {
      socket.destroy();
      resolve({ status: response.statusCode ?? 0, headers: response.headers, body: "" });
    });
    sent.end(body);
  });
}

async function halves(): Promise<{ readonly cookie: string; readonly half: string }> {
  const [cookie] = await page.context().cookies();
  return { cookie: `${cookie?.name}=${cookie?.value}`, half: (await page.evaluate("localStorage.getItem('svc-console-half')")) as string };
}

/** Opens the sandbox's application in a tab of the signed-in browser. */
async function openApplication(): Promise<Page> {
  const tab = await page.context().newPage();
  await until("the application answers", async () => {
    await tab.goto(application.origin).catch(() => undefined);
    return (await tab.title()) === "application" ? true : undefined;
  });
  return tab;
}

void test("a session needs both halves: a stolen cookie alone, or the page's half alone, opens nothing", need, async () => {
  const { cookie, half } = await halves();
  const path = "/console/api/session";
  assert.equal((await send(path, { cookie, "x-svc-console": half })).status, 200);
  assert.equal((await send(path, { cookie })).status, 401);
  assert.equal((await send(path, { "x-svc-console": half })).status, 401);
  assert.equal((await send(path, { cookie, "x-svc-console": half.replace(/./, (first) => (first === "0" ? "1" : "0")) })).status, 401);
  assert.equal((await send("/v2/sandboxes", { cookie, "x-svc-console": half })).status, 401, "the API itself knows the key alone");
  assert.equal((await send("/console/api/links", { cookie, "x-svc-console": half, "content-type": "application/json" }, "POST", "{}")).status, 401);
});

void test("the console answers at no name but its own, even if another one resolves to its address", need, async () => {
  const { cookie, half } = await halves();
  for (const host of ["evil.example", `evil.example:${node.port}`, "localhost.evil.example", `x.localhost:${node.port}`]) {
    for (const path of ["/console", "/console/api/session"]) {
      const { status, body } = await send(path, { host, cookie, "x-svc-console": half });
      assert.equal(status, 403, `${path} at ${host}: ${body}`);
    }
  }
  assert.equal((await send("/console", { host: `127.0.0.1:${node.port}` })).status, 200);
});

void test("requests of other origins are refused, even with both halves", need, async () => {
  const { cookie, half } = await halves();
  const headers = { cookie, "x-svc-console": half, "content-type": "application/json" };
  const body = JSON.stringify({ operation: "listSandboxes" });
  assert.equal((await send("/console/api/call", headers, "POST", body)).status, 200);
  for (const more of [
    { origin: application.origin },
    { origin: "null" },
    { origin: "http://evil.example" },
    { "sec-fetch-site": "same-site" },
    { "sec-fetch-site": "cross-site" },
  ])
    assert.equal((await send("/console/api/call", { ...headers, ...more }, "POST", body)).status, 403, JSON.stringify(more));
  assert.equal(
    (await send("/console/api/call", { ...headers, "content-type": "text/plain" }, "POST", body)).status,
    415,
    "a form of another page cannot send JSON",
  );
  const socket = {
    connection: "Upgrade",
    upgrade: "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "sec-websocket-protocol": "svc-console-1",
  };
  assert.equal((await send("/console/live", { ...socket, cookie, origin: application.origin })).status, 403);
  assert.equal((await send("/console/live", { ...socket, cookie })).status, 403);
  assert.equal((await send("/console/live", { ...socket, cookie, origin: own })).status, 101);
  assert.equal((await send("/v2/sandboxes", { ...socket, "x-api-key": node.apiKey })).status, 200, "only the console's socket upgrades");
});

void test("an application in a sandbox can neither frame, read, script nor forge requests to the console", need, async () => {
  const tab = await openApplication();
  const tried = (await tab.evaluate(`(async () => {
    const own = ${JSON.stringify(own)};
    const read = async (path, options) => fetch(own + path, options).then(async (r) => r.status + " " + (await r.text()).slice(0, 40), (e) => "refused: " + e.message);
    const json = { "content-type": "application/json" };
    const frame = document.createElement("iframe");
    frame.src = own + "/console";
    document.body.append(frame);
    await new Promise((done) => { frame.onload = done; setTimeout(done, 3000); });
    let framed;
    try { framed = String(frame.contentDocument?.body?.innerHTML) } catch (e) { framed = "refused" }
    const opened = window.open(own + "/console");
    await new Promise((done) => setTimeout(done, 1500));
    let scripted;
    try { scripted = String(opened?.document?.title) } catch (e) { scripted = "refused" }
    const socket = await new Promise((done) => { const ws = new WebSocket(own.replace("http", "ws") + "/console/live", "svc-console-1"); ws.onopen = () => done("open"); ws.onerror = () => done("refused"); });
    return { framed, scripted, socket, closed: opened === null || opened.closed,
      session: await read("/console/api/session", { credentials: "include" }),
      custom: await read("/console/api/session", { credentials: "include", headers: { "x-svc-console": "x" } }),
      forged: await read("/console/api/call", { method: "POST", credentials: "include", headers: json, body: "{}" }),
      simple: await read("/console/api/call", { method: "POST", credentials: "include", mode: "no-cors", body: JSON.stringify({ operation: "listSandboxes" }) }),
      asset: await read("/console", { credentials: "include" }) };
  })()`)) as Record<string, string>;
  assert.ok(
    tab.frames().every((frame) => !frame.url().startsWith(own)),
    "the frame stays empty",
  );
  assert.match(tried["framed"] ?? "", /^(refused|null|undefined|)$/, "framed");
  assert.match(tried["scripted"] ?? "", /^(refused|undefined|)$/, "scripted");
  assert.equal(tried["socket"], "refused");
  for (const name of ["session", "custom", "forged", "asset"]) assert.match(tried[name] ?? "", /^refused/, name);
  assert.doesNotMatch(tried["simple"] ?? "", /^200/, "a request without a preflight");
  await tab.close();
});

void test("a page that a sandbox made runs no script at the console's own host", need, async () => {
  const client = new SvcClient({ baseURL: node.url, apiKey: node.apiKey });
  const access = await client.get(application.sandboxID);
  const envd = client.envd(access);
  await envd.upload("/home/user/evil.html", Buffer.from("<script>document.title = 'ran'; top.location = '/console'</script>evil"));
  envd.close();
  const { createHash } = await import("node:crypto");
  const signature = createHash("sha256").update(`/home/user/evil.html:read:user:${access.envdAccessToken}`).digest("base64").replace(/=+$/, "");
  const url = `/files?${new URLSearchParams({ path: "/home/user/evil.html", username: "user", signature: `v1_${signature}` })}`;
  const { status, headers } = await send(url, {});
  assert.equal(status, 200);
  assert.equal(headers["content-security-policy"], "sandbox", "it has an origin of its own, and no scripts");
  assert.equal(headers["x-content-type-options"], "nosniff");
});

void test("an application on another port of the host gets the cookie at most, and cannot read what belongs to the console's origin", need, async () => {
  const seen: string[] = [];
  const other = createServer((incoming, response) => {
    seen.push(incoming.headers.cookie ?? "");
    response.setHeader("content-type", "text/html");
    response.end("<title>other port</title>");
  });
  await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
  const tab = await page.context().newPage();
  await tab.goto(`http://localhost:${(other.address() as AddressInfo).port}/console/steal`);
  assert.equal(await tab.evaluate("localStorage.getItem('svc-console-half')"), null);
  const stolen = seen.find((cookie) => cookie !== "") ?? "";
  assert.equal((await send("/console/api/session", { cookie: stolen, "x-svc-console": "" })).status, 401);
  await tab.close();
  other.close();
});

void test("a link signs in once, and a read-only session changes nothing and sees no content or token", need, async () => {
  const { path } = await call(createConsoleLink, { readOnly: true }, { baseURL: node.url, apiKey: node.apiKey });
  const first = await (await browser.context()).newPage();
  await first.goto(own + path);
  await first.getByText("read-only", { exact: true }).waitFor();
  assert.doesNotMatch(first.url(), /once/, "the secret leaves the address at once");
  const second = await (await browser.context()).newPage();
  await second.goto(own + path);
  await second.getByText("this link was used already").waitFor();

  await first.goto(`${own}/console/sandboxes/${application.sandboxID}`);
  await first.getByRole("heading", { name: "Timeline" }).waitFor();
  assert.equal(await first.getByRole("button", { name: "Delete" }).count(), 0);
  assert.equal(await first.getByRole("link", { name: "Terminal" }).count(), 0);
  const tried = (await first.evaluate(`(async () => {
    const half = localStorage.getItem("svc-console-half");
    const post = (path, body) => fetch("/console/api/" + path, { method: "POST", headers: { "x-svc-console": half, "content-type": "application/json" }, body: JSON.stringify(body) }).then(async (r) => [r.status, await r.text()]);
    const id = ${JSON.stringify(application.sandboxID)};
    return [await post("call", { operation: "deleteSandbox", input: { sandboxID: id } }), await post("inside/" + id, { verb: "list", path: "/" }), await post("call", { operation: "getSandbox", input: { sandboxID: id } })];
  })()`)) as [number, string][];
  assert.deepEqual(
    tried.map(([status]) => status),
    [403, 403, 200],
  );
  assert.doesNotMatch(tried[2]?.[1] ?? "", /AccessToken/);
});

void test("with another API key every session is over", need, async () => {
  await node.restart("SIGTERM", { env: { SVC_API_KEY: "another-key-of-this-deployment-0123456789" } });
  await page.goto(`${own}/console`);
  await page.getByLabel("API key").waitFor();
});

void test("the console can be switched off", need, async () => {
  await node.restart("SIGTERM", { flags: ["--console", "off"] });
  assert.equal((await send("/console", { "x-api-key": node.apiKey })).status, 404);
});
