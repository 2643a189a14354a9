// The console of a master and of an indexer that run alone: a browser finds it at their own address, with the rules of a node's.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { request } from "node:http";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { needs } from "@svc/harness/needs.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { type OpenServer, openServer } from "@svc/harness/server-process.ts";
import { CHROMIUM, checkAccess, openBrowser, signIn, type TestBrowser } from "./browser.ts";

const need = needs("root", CHROMIUM);
const main = (file: string) => fileURLToPath(new URL(`../../${file}`, import.meta.url));
const execute = promisify(execFile);
const home = makeHome();
const KEY = "an-indexer-key-of-its-own-0123456789";
let browser: TestBrowser;
let rpc: number;
let master: OpenServer;
let indexer: OpenServer;

before(async () => {
  if (need.skip !== false) return;
  [rpc = 0] = await freePorts(1);
  [master, indexer, browser] = await Promise.all([
    openServer([main("store/src/master/main.ts")], [`--home=${home}`, "--store.rpc_address=127.0.0.1", `--store.rpc_port=${rpc}`]),
    openServer([main("indexer/src/main.ts")], [`--home=${home}/indexer`], { SVC_INDEXER_API_KEY: KEY }),
    openBrowser(),
  ]);
});
after(async () => {
  await browser?.[Symbol.asyncDispose]();
  await Promise.all([master?.[Symbol.asyncDispose](), indexer?.[Symbol.asyncDispose]()]);
  removeHome(home);
});

type Sent = { readonly status: number; readonly headers: Readonly<Record<string, unknown>>; readonly text: string };
/** Sends a request with headers that a browser would not let a page set. */
function send(url: string, path: string, headers: Readonly<Record<string, string>> = {}, body?: object): Promise<Sent> {
  return new Promise((resolve, reject) => {
    const sent = request(
      new URL(path, url),
      { method: body === undefined ? "GET" : "POST", headers: { ...(body === undefined ? {} : { "content-type": "application/json" }), ...headers } },
      (response) => {
        let text = "";
        response.on("data", (piece: Buffer) => (text += piece.toString()));
        response.on("end", () => resolve({ status: response.statusCode ?? 0, headers: response.headers, text }));
      },
    );
    sent.on("error", reject);
    sent.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

void test("svc console signs a browser in at a master and at an indexer of this machine, also before they have a key", need, async () => {
  for (const { env, url, heading } of [
    { env: { SVC_HOME: home }, url: [], heading: "0 keys, 0 unfinished puts" },
    { env: { SVC_HOME: `${home}/indexer`, SVC_INDEXER_API_KEY: KEY }, url: ["--url", indexer.url], heading: "No publisher is registered." },
  ]) {
    const { stdout } = await execute(process.execPath, [main("cli/src/main.ts"), "console", "--no-open", ...url], {
      env: { PATH: process.env["PATH"], ...env },
    });
    const page = await (await browser.context()).newPage();
    await page.goto(stdout.trim());
    await page.getByText(heading).waitFor();
  }
  assert.deepEqual(browser.errors, []);
});

void test("a master that runs alone shows the cache at its own address, and says that sandboxes are not here", need, async () => {
  const page = await (await browser.context()).newPage();
  await page.goto(`${master.url}/console`);
  await page.getByText("The key of this server is in $SVC_HOME/secrets/api-key.").waitFor();
  await checkAccess(page, "the sign-in of a master");
  await page.getByLabel("API key").fill("not-the-key-not-the-key-not-the-key");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("this is not the key of this server, which comes from $SVC_HOME/secrets/api-key").waitFor();
  await signIn(page, readFileSync(join(home, "secrets/api-key"), "utf8").trim());
  await page.getByRole("heading", { name: "Cache" }).waitFor();
  await page.getByText("0 keys, 0 unfinished puts").waitFor();
  assert.deepEqual(await page.getByRole("navigation").getByRole("listitem").allTextContents(), ["Cache", "Health"]);
  await checkAccess(page, "the cache of a master");
  await page.keyboard.press("c");
  await page.getByText("svc store master runs no sandboxes").waitFor();
  await page.goto(`${master.url}/console/sandboxes`);
  await page.getByRole("heading", { name: "Not here" }).waitFor();
  await page.getByText("The console of a node or a gateway shows them").waitFor();
  await page.getByRole("link", { name: "Health" }).click();
  await page.getByText("Nothing needs attention.").waitFor();
  await checkAccess(page, "the health of a master");
  // The same connection may be used for the server's other pages.
  await page.goto(`${master.url}/`);
  await page.getByRole("link", { name: "Console" }).click();
  await page.getByText("0 keys, 0 unfinished puts").waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("API key").waitFor();
  assert.deepEqual(browser.errors, []);
});

void test("keys that clients looked up and did not find are counted by reason in the view of the store", need, async () => {
  const get = [main("store/src/cli/main.ts"), "get", "never put", `--master=127.0.0.1:${rpc}`];
  const [code] = (await once(spawn(process.execPath, get, { stdio: "ignore" }), "exit")) as [number];
  assert.notEqual(code, 0, "there is no such key");
  const page = await browser.signedIn({ url: master.url, apiKey: readFileSync(join(home, "secrets/api-key"), "utf8").trim() });
  const misses = page.getByRole("list", { name: "Misses by reason" });
  await misses.getByText("never stored").waitFor();
  await checkAccess(page, "a store with misses");
  assert.deepEqual(browser.errors, []);
});

void test("an indexer with a key of its own is opened with that key, and explains a prompt there", need, async () => {
  const page = await browser.signedIn({ url: indexer.url, apiKey: KEY });
  await page.getByText("No publisher is registered.").waitFor();
  const cookies = await page.context().cookies(`${indexer.url}/console`);
  const port = new URL(indexer.url).port;
  assert.deepEqual(
    cookies.map(({ name, path, httpOnly, sameSite }) => ({ name, path, httpOnly, sameSite })),
    [{ name: `svc_console_${port}`, path: "/console", httpOnly: true, sameSite: "Strict" }],
  );
  assert.ok(!(await page.content()).includes(KEY), "the key is not in the page");
  assert.ok(!((await page.evaluate("JSON.stringify(localStorage)")) as string).includes(KEY), "the key is not in the storage");
  assert.deepEqual(await page.getByRole("navigation").getByRole("listitem").allTextContents(), ["Cache", "Health"]);
  await page.getByRole("link", { name: "Health" }).click();
  await page.getByText("Nothing needs attention.").waitFor();
  await page.getByText("The view Cache shows this server.").waitFor();
  assert.deepEqual(browser.errors, []);
});

void test("the console of a lone server answers only its own host and its own pages, and its socket nobody without a session", need, async () => {
  for (const { url } of [master, indexer]) {
    const { host } = new URL(url);
    const page = await send(url, "/console");
    assert.equal(page.status, 200);
    const policy = String(page.headers["content-security-policy"]);
    assert.match(policy, /default-src 'none'.*frame-src 'none'.*frame-ancestors 'none'/);
    assert.equal(page.headers["access-control-allow-origin"], undefined);
    assert.equal((await send(url, "/console", { host: "rebound.example" })).status, 403);
    const session = "/console/api/session";
    assert.equal((await send(url, session)).status, 401);
    const signIns = [{ origin: "http://other.example" }, { "sec-fetch-site": "cross-site" }];
    for (const headers of signIns) assert.equal((await send(url, "/console/api/sign-in", headers, { key: KEY })).status, 403);
    assert.equal((await send(url, "/console/api/links", {}, {})).status, 401);
    assert.equal((await send(url, "/consoles")).status, 404);
    const upgrade = { connection: "Upgrade", upgrade: "websocket", "sec-websocket-version": "13", "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==" };
    assert.equal((await send(url, "/console/live", { ...upgrade, origin: "http://other.example", host })).status, 403);
  }
});

void test("a master with --console off has no console, and one with --console read-only hands no lead over", need, async () => {
  const own = makeHome();
  const flags = (mode: string) => [`--home=${own}`, "--store.rpc_address=127.0.0.1", "--store.rpc_port=0", `--console=${mode}`];
  try {
    {
      await using off = await openServer([main("store/src/master/main.ts")], flags("off"));
      assert.equal((await send(off.url, "/console")).status, 404);
    }
    await using readOnly = await openServer([main("store/src/master/main.ts")], flags("read-only"));
    await send(readOnly.url, "/console/api/session");
    const key = readFileSync(join(own, "secrets/api-key"), "utf8").trim();
    const opened = await send(readOnly.url, "/console/api/sign-in", {}, { key });
    const { half } = JSON.parse(opened.text) as { half: string };
    const [cookie = ""] = String((opened.headers["set-cookie"] as string[])[0]).split(";");
    const signed = { cookie, "x-svc-console": half };
    assert.equal((await send(readOnly.url, "/console/api/cache", signed)).status, 200);
    assert.equal((await send(readOnly.url, "/console/api/cache", { cookie })).status, 401);
    assert.equal((await send(readOnly.url, "/console/api/cache-act", signed, { act: "lead", id: "b" })).status, 403);
  } finally {
    removeHome(own);
  }
});
