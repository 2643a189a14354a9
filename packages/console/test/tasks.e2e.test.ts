// Five tasks as somebody does them who has read nothing: from the first page after the sign-in, by what the page says, and in the browser alone.
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { SvcClient } from "@svc/contract/client.ts";
import { endWithUs } from "@svc/harness/children.ts";
import { killIfThere } from "@svc/harness/crash.ts";
import { KEY as apiKey, type FrontedNodes, startFrontedNodes } from "@svc/harness/fronted-nodes.ts";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { membersOf } from "@svc/harness/leftovers.ts";
import { needs } from "@svc/harness/needs.ts";
import { type OpenServer, openServer } from "@svc/harness/server-process.ts";
import { until } from "@svc/harness/until.ts";
import type { Page } from "playwright-core";
import { CHROMIUM, openBrowser, type TestBrowser } from "./browser.ts";

const need = needs("root", "runsc", "envd", "base", CHROMIUM);
const main = (file: string) => fileURLToPath(new URL(`../../${file}`, import.meta.url));
const LAST_WORDS = "rollout 7: no checkpoint for step 41";
const SERVE = `
import http.server
class App(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("content-type", "text/html"); self.end_headers()
        self.wfile.write(b"<h1>The application of the rollout</h1>")
http.server.HTTPServer(("0.0.0.0", 3000), App).serve_forever()
`;

const folder = makeHome();
const engines: ChildProcess[] = [];
let deployment: FrontedNodes;
let indexer: OpenServer;
let browser: TestBrowser;
let client: SvcClient;
let address: string;

before(async () => {
  if (need.skip !== false) return;
  [indexer, browser] = await Promise.all([openServer([main("indexer/src/main.ts")], [`--home=${folder}/indexer`]), openBrowser()]);
  deployment = await startFrontedNodes({ flags: [`--console.indexer_url=${indexer.url}`], node: { runtime: "gvisor" } });
  client = new SvcClient({ baseURL: deployment.gateway.url, apiKey });
  address = `http://localhost:${deployment.gateway.port}`;
});
after(async () => {
  await browser?.[Symbol.asyncDispose]();
  for (const engine of engines) engine.kill("SIGKILL");
  await deployment?.[Symbol.asyncDispose]();
  await indexer?.[Symbol.asyncDispose]();
  removeHome(folder);
});

/** Runs a task on the first page of a person who has just signed in. */
async function signedIn(task: (page: Page) => Promise<void>): Promise<void> {
  const page = await browser.signedIn({ url: address, apiKey });
  await page.getByRole("heading", { name: "Sandboxes" }).waitFor();
  await task(page);
  await page.context().close();
  assert.deepEqual(browser.errors, []);
}
const view = (page: Page, name: string) => page.getByRole("navigation", { name: "Views" }).getByRole("link", { name }).click();
const part = (page: Page, name: string) => page.getByRole("navigation", { name: "Parts of the sandbox" }).getByRole("link", { name }).click();

/** Starts a program in a sandbox; resolves at its start if it stays, else at its end. */
async function run(sandboxID: string, args: readonly string[], stays = false): Promise<void> {
  const envd = client.envd(await client.get(sandboxID));
  for await (const event of envd.start({ cmd: args[0] ?? "", args: args.slice(1) })) if (stays && event.type === "start") break;
  envd.close();
}

void test("a person finds the one rollout of many that failed, and why", need, async () => {
  const rollouts = await Promise.all(
    Array.from({ length: 4 }, (_, index) => client.create({ templateID: "base", metadata: { run: "evening", rollout: String(index) } })),
  );
  const failing = rollouts[2]?.sandboxID ?? "";
  await run(failing, ["/bin/sh", "-c", `echo '${LAST_WORDS}' >&2`]);
  for await (const { message } of client.logs(failing, { follow: true })) if (message.includes(LAST_WORDS)) break;
  for (const { home } of deployment.nodes) for (const pid of membersOf(home, failing)) killIfThere(pid);
  await signedIn(async (page) => {
    await page.getByRole("button", { name: "Failed 1" }).click();
    const row = page.getByRole("row").filter({ hasText: "rollout=2" });
    await row.getByText("it crashed").waitFor();
    assert.equal(await page.getByRole("row").filter({ hasText: "run=evening" }).count(), 1, "the others are not listed");
    await row.getByRole("link").click();
    await page.getByRole("heading", { name: "Ended: it crashed" }).waitFor();
    await page.getByLabel("The end of its log").getByText(LAST_WORDS).waitFor();
  });
  await Promise.all(rollouts.filter(({ sandboxID }) => sandboxID !== failing).map(({ sandboxID }) => client.delete(sandboxID)));
});

void test("a person allows a host that a sandbox was denied", need, async () => {
  const { sandboxID } = await client.create({ templateID: "base", allow_internet_access: false });
  await run(sandboxID, ["/bin/sh", "-c", "getent hosts packages.example; true"]);
  await signedIn(async (page) => {
    await page.getByRole("link", { name: sandboxID }).click();
    await part(page, "Network");
    await page.getByRole("row").filter({ hasText: "packages.example" }).getByRole("button", { name: "Allow packages.example" }).click();
    await page.getByText(`${sandboxID} may reach packages.example from now on.`).waitFor();
    await page.getByRole("cell", { name: "allowed" }).waitFor();
  });
  assert.deepEqual((await client.get(sandboxID)).network?.allowOut, ["packages.example"]);
  await client.delete(sandboxID);
});

void test("a person forks a running sandbox and opens its port", need, async () => {
  const { sandboxID } = await client.create({ templateID: "base" });
  await run(sandboxID, ["python3", "-c", SERVE], true);
  await signedIn(async (page) => {
    await page.getByRole("link", { name: sandboxID }).click();
    await page.getByRole("button", { name: "Fork" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Fork" }).click();
    await page.getByText(`Forked ${sandboxID}.`).waitFor();
    const fork = await until("the page of the fork", () => {
      const id = new URL(page.url()).pathname.split("/").at(3);
      return id === sandboxID ? undefined : id;
    });
    await part(page, "Ports");
    await page.getByLabel("Port", { exact: true }).fill("3000");
    const [application] = await Promise.all([page.waitForEvent("popup"), page.getByRole("link", { name: `http://3000-${fork}.localhost` }).click()]);
    await application.getByRole("heading", { name: "The application of the rollout" }).waitFor();
    await page.getByRole("button", { name: "Preview" }).click();
    await page.frameLocator("iframe").getByRole("heading", { name: "The application of the rollout" }).waitFor();
    await client.delete(fork);
  });
  await client.delete(sandboxID);
});

void test("a person finds which engine holds a prompt", need, async () => {
  const prompts = [1, 2].map((engine) => Array.from({ length: 64 }, (_, at) => engine * 1_000 + at));
  for (const [at, token_ids] of prompts.entries()) {
    const trace = join(folder, `trace-${at + 1}`);
    writeFileSync(trace, `${JSON.stringify({ timestamp: 0, token_ids })}\n`);
    const simulate = ["simulate", "--model", "demo", "--instance", `engine-${at + 1}`, "--trace", trace, "--stay", "--url", indexer.url];
    const engine = spawn(process.execPath, [main("indexer/src/cli/main.ts"), ...simulate], { stdio: "ignore" });
    endWithUs(engine);
    engines.push(engine);
  }
  await signedIn(async (page) => {
    await view(page, "Cache");
    await page.getByRole("heading", { name: "Which engine holds a prompt" }).waitFor();
    await page.getByRole("rowheader", { name: "engine-1" }).waitFor();
    await page.getByRole("rowheader", { name: "engine-2" }).waitFor();
    await page.getByLabel("Tokens of the prompt").fill(prompts[1]?.join(", ") ?? "");
    const matches = page.getByRole("listitem").filter({ hasText: /of 4 blocks/ });
    await until("the events of both have arrived", async () => {
      await page.getByRole("button", { name: "Explain" }).click();
      const found = await matches.allTextContents();
      return found.length === 2 && found[0]?.startsWith("engine-2 4 of 4") ? true : undefined;
    });
    assert.match((await matches.allTextContents())[1] ?? "", /^engine-1 0 of 4/);
  });
});

void test("a person drains a node and takes it into service again", need, async () => {
  const [node] = await client.nodes();
  const name = node?.id ?? "";
  await signedIn(async (page) => {
    await view(page, "Nodes");
    const row = page.getByRole("row").filter({ hasText: name });
    await row.getByText("ready").waitFor();
    await row.getByRole("button", { name: "Drain" }).click();
    await page.getByRole("dialog").getByText("Nothing is deleted.").waitFor();
    await page.getByRole("dialog").getByRole("button", { name: "Drain" }).click();
    await row.getByText("draining").waitFor();
    assert.equal((await client.nodes()).find(({ id }) => id === name)?.status, "draining");
    await row.getByRole("button", { name: "Make ready" }).click();
    await row.getByRole("button", { name: "Drain" }).waitFor();
  });
});
