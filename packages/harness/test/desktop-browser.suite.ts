// Chromium's DevTools in a sandbox of the template browser, through the proxy by host name and by headers, and Playwright inside.
import assert from "node:assert/strict";
import { get } from "node:http";
import { test } from "node:test";
import { Sandbox } from "e2b";
import { chromium } from "playwright-core";
import { WebSocket } from "ws";
import type { TestNode } from "../src/node.ts";
import { connectionTo } from "../src/template.ts";
import { until } from "../src/until.ts";

const PORT = 9222;
const PROGRAM_MS = 300_000;

type Answer = { readonly status: number | undefined; readonly text: string };

/** The title that a program inside prints, in the languages for which the template has Playwright. */
const programs = {
  "program.py": `from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    for browser in (playwright.chromium.launch(), playwright.chromium.connect_over_cdp("http://localhost:${PORT}")):
        page = browser.new_page()
        page.goto("data:text/html,<title>from Python</title>")
        print(page.title())
        browser.close()
`,
  "program.mjs": `import { chromium } from "playwright";
for (const browser of [await chromium.launch(), await chromium.connectOverCDP("http://localhost:${PORT}")]) {
  const page = await browser.newPage();
  await page.goto("data:text/html,<title>from Node</title>");
  console.log(await page.title());
  await browser.close();
}
`,
} as const;

export function browserTests(node: () => TestNode): void {
  async function inBrowser(work: (sandbox: Sandbox) => Promise<void>): Promise<void> {
    const sandbox = await Sandbox.create("browser", { ...connectionTo(node()), timeoutMs: 900_000 });
    try {
      await work(sandbox);
    } finally {
      await sandbox.kill();
    }
  }
  const byHeaders = ({ sandboxId }: Sandbox) => ({ "e2b-sandbox-id": sandboxId, "e2b-sandbox-port": String(PORT) });

  function asked(path: string, headers: Record<string, string>): Promise<Answer> {
    return new Promise((resolve, reject) => {
      get(`${node().url}${path}`, { headers }, (response) => {
        let text = "";
        response.setEncoding("utf8").on("data", (chunk: string) => (text += chunk));
        response.once("end", () => resolve({ status: response.statusCode, text }));
      }).once("error", reject);
    });
  }
  const versionOf = async (headers: Record<string, string>) => JSON.parse((await asked("/json/version", headers)).text) as { webSocketDebuggerUrl: string };

  void test("Playwright connects from outside, opens a page that the sandbox serves, and takes a screenshot", () =>
    inBrowser(async (sandbox) => {
      await sandbox.files.write("/home/user/index.html", "<title>served inside</title><button onclick='document.title = 1'>press</button>");
      await sandbox.commands.run("python3 -m http.server 8000", { background: true, timeoutMs: 0 });
      const browser = await chromium.connectOverCDP(node().url, { headers: byHeaders(sandbox) });
      const page = await browser.newPage();
      await until("the page", () => page.goto("http://localhost:8000/").then(Boolean, () => undefined));
      assert.equal(await page.title(), "served inside");
      await page.getByRole("button", { name: "press" }).click();
      assert.equal(await page.title(), "1");
      assert.equal(Buffer.from(await page.screenshot()).toString("latin1", 1, 4), "PNG");
      await browser.close();
    }));

  void test("DevTools name themselves by the host that the client used, and their websocket works by that name", () =>
    inBrowser(async (sandbox) => {
      const Host = sandbox.getHost(PORT);
      const { webSocketDebuggerUrl } = await versionOf({ Host });
      assert.ok(webSocketDebuggerUrl.startsWith(`ws://${Host}/devtools/browser/`), webSocketDebuggerUrl);
      const own = await versionOf(byHeaders(sandbox));
      assert.ok(own.webSocketDebuggerUrl.startsWith(`${node().url.replace("http", "ws")}/devtools/browser/`), own.webSocketDebuggerUrl);
      // The root is the browser's own websocket as well.
      for (const path of [new URL(webSocketDebuggerUrl).pathname, "/"]) {
        const browser = await chromium.connectOverCDP(`${node().url.replace("http", "ws")}${path}`, { headers: { Host } });
        assert.match(browser.version(), /^\d+\./);
        await browser.close();
      }
      const created = await asked("/json/list", { Host });
      assert.equal(created.status, 200);
      assert.ok(created.text.includes(`ws://${Host}/devtools/page/`), created.text);
    }));

  void test("pages cannot drive the browser that shows them: a websocket with an Origin is refused", () =>
    inBrowser(async (sandbox) => {
      const headers = { ...byHeaders(sandbox), Origin: "http://evil.example" };
      const socket = new WebSocket(`${node().url.replace("http", "ws")}/`, { headers });
      const error = await new Promise<Error | undefined>((resolve) => {
        socket.once("error", resolve);
        socket.once("open", () => resolve(undefined));
      });
      assert.match(String(error), /403/);
    }));

  void test("Playwright works inside, in Python and in Node, with the browser that runs and with one of its own", () =>
    inBrowser(async (sandbox) => {
      for (const [name, text] of Object.entries(programs)) {
        await sandbox.files.write(`/home/user/${name}`, text);
        const { stdout } = await sandbox.commands.run(`${name.endsWith("py") ? "python3" : "node"} ${name}`, { timeoutMs: PROGRAM_MS });
        const title = name.endsWith("py") ? "from Python" : "from Node";
        assert.equal(stdout, `${title}\n${title}\n`);
      }
    }));

  void test("a Chromium that is killed starts again, and clients can connect again", () =>
    inBrowser(async (sandbox) => {
      const before = await versionOf(byHeaders(sandbox));
      await sandbox.commands.run("pkill -KILL -x chromium");
      await until("another Chromium", async () => {
        const { status, text } = await asked("/json/version", byHeaders(sandbox));
        if (status === 503) assert.match(text, /Chromium does not run now; it starts again within seconds/);
        return status === 200 && JSON.parse(text).webSocketDebuggerUrl !== before.webSocketDebuggerUrl ? true : undefined;
      });
      const browser = await chromium.connectOverCDP(node().url, { headers: byHeaders(sandbox) });
      await browser.newPage();
      await browser.close();
    }));
}
