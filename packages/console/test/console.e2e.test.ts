// The console in a real Chromium against a real node: signing in, the live table, and all tabs of a sandbox's page.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { SvcClient } from "@svc/contract/client.ts";
import { createSandbox, deleteSandbox, getSandbox } from "@svc/contract/sandbox.ts";
import { needs } from "@svc/harness/needs.ts";
import { startNode, type TestNode } from "@svc/harness/node.ts";
import { until } from "@svc/harness/until.ts";
import type { Page } from "playwright-core";
import { CHROMIUM, checkAccess, openBrowser, type TestBrowser } from "./browser.ts";

const need = needs("root", "runsc", "envd", "base", CHROMIUM);
let node: TestNode;
let browser: TestBrowser;
let page: Page;
let client: SvcClient;

before(async () => {
  if (need.skip !== false) return;
  [node, browser] = await Promise.all([startNode({ runtime: "gvisor" }), openBrowser()]);
  client = new SvcClient({ baseURL: node.url, apiKey: node.apiKey });
});
after(async () => {
  await browser?.[Symbol.asyncDispose]();
  await node?.[Symbol.asyncDispose]();
});

const row = (text: string) => page.getByRole("row").filter({ hasText: text });
const tab = (name: string) => page.getByRole("navigation", { name: "Parts of the sandbox" }).getByRole("link", { name }).click();

void test("a browser signs in with the API key, and neither its storage nor the address holds the key", need, async () => {
  const wrong = await (await browser.context()).newPage();
  await wrong.goto(`${node.url}/console`);
  await checkAccess(wrong, "sign-in");
  await wrong.getByLabel("API key").fill("not-the-key");
  await wrong.getByRole("button", { name: "Sign in" }).click();
  await wrong.getByText("this is not the API key of this server").waitFor();
  await wrong.context().close();

  page = await browser.signedIn(node);
  await page.getByText("No sandbox runs here").waitFor();
  await checkAccess(page, "the empty list");
  const [cookie] = await page.context().cookies();
  assert.deepEqual([cookie?.httpOnly, cookie?.sameSite, cookie?.path], [true, "Strict", "/console"]);
  const kept = (await page.evaluate("JSON.stringify([localStorage, sessionStorage, location.href, document.cookie])")) as string;
  assert.doesNotMatch(kept, new RegExp(node.apiKey));
  assert.match(kept, /""\]$/, "a script of the page cannot read the cookie");
});

void test("a sandbox that anybody creates, pauses or deletes changes in the open table", need, async () => {
  const { sandboxID } = await node.call(createSandbox, { templateID: "base", metadata: { run: "live", step: "1" } });
  await row(sandboxID).getByText("running").waitFor();
  await row(sandboxID).getByText("run=live").waitFor();
  await page.getByRole("button", { name: "Running 1" }).waitFor();
  await checkAccess(page, "the table");
  await client.pause(sandboxID);
  await row(sandboxID).getByText("paused").waitFor();
  await page.getByRole("button", { name: "Paused 1" }).waitFor();
  await node.call(deleteSandbox, { sandboxID });
  await row(sandboxID).getByText("deleted by a request").waitFor();
});

void test("a person creates a sandbox by the keyboard, and filters and groups what runs by metadata", need, async () => {
  await page.locator("h1").first().click();
  await page.keyboard.press("c");
  await checkAccess(page, "the form of a create");
  await page.getByLabel("Metadata").fill("run=alpha");
  await page.getByRole("dialog").getByRole("button", { name: "Create" }).click();
  await page.waitForURL(/\/console\/sandboxes\/[a-z0-9]+$/);
  const id = new URL(page.url()).pathname.split("/").at(-1) ?? "";
  assert.deepEqual((await node.call(getSandbox, { sandboxID: id })).metadata, { run: "alpha" });
  await checkAccess(page, "one sandbox");
  await page.goto(`${node.url}/console/sandboxes?q=run%3Dalpha`);
  await row(id).waitFor();
  assert.equal(await row("run=live").count(), 0, "the other run is not listed");
  await page.getByLabel("Group by").selectOption("run");
  await page.getByRole("rowheader", { name: "alpha" }).waitFor();
  await checkAccess(page, "groups");
  await page.getByRole("button", { name: "End the run" }).click();
  await page.getByText("are lost", { exact: false }).waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await until("the run has ended", async () => ((await client.get(id).catch(() => undefined)) === undefined ? true : undefined));
});

void test("pause, resume, fork and delete act on many selected sandboxes at once", need, async () => {
  const made = await Promise.all([1, 2].map((index) => node.call(createSandbox, { templateID: "base", metadata: { run: "many", index: String(index) } })));
  await page.goto(`${node.url}/console/sandboxes?q=run%3Dmany`);
  for (const { sandboxID } of made) await row(sandboxID).getByText("running").waitFor();
  await page.keyboard.press("j");
  await page.locator("tr[tabindex]:focus").waitFor();
  await page.keyboard.press("j");
  await page.keyboard.press("x");
  await page.getByRole("toolbar").getByText("1 chosen").waitFor();
  await page.keyboard.press("x");
  const act = async (name: string) => {
    await page.getByLabel("Choose all that are listed").check();
    await page.getByRole("toolbar").getByRole("button", { name }).click();
  };
  await act("Pause");
  for (const { sandboxID } of made) await row(sandboxID).getByText("paused").waitFor();
  await page.getByRole("toolbar").getByRole("button", { name: "Resume" }).click();
  await page.getByRole("dialog").getByLabel("Minutes from now until it ends").fill("20");
  await page.getByRole("dialog").getByRole("button", { name: "Resume" }).click();
  for (const { sandboxID } of made) await row(sandboxID).getByText("running").waitFor();
  await page.getByRole("toolbar").getByRole("button", { name: "Fork" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Fork" }).click();
  await page.getByText("↳1").nth(1).waitFor();
  await page.getByLabel("Choose all that are listed").check();
  await page.getByRole("toolbar").getByRole("button", { name: "Delete" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText("Deleted 4 sandboxes.").waitFor();
});

void test("a terminal takes keys, keeps its shell over a reload, and each of several has its own", need, async () => {
  const { sandboxID } = await node.call(createSandbox, { templateID: "base" });
  await page.goto(`${node.url}/console/sandboxes/${sandboxID}`);
  await page.getByRole("heading", { name: "Timeline" }).waitFor();
  await page.keyboard.press("t");
  const screen = page.locator(".screen:not([hidden]) .xterm-rows");
  const type = async (text: string) => {
    await page.locator(".screen:not([hidden]) .xterm-helper-textarea").focus();
    await page.keyboard.type(`${text}\n`);
  };
  await screen.getByText("$").first().waitFor();
  await type("x=$((6*7)); echo answer-$x");
  await screen.getByText("answer-42", { exact: true }).waitFor();
  await page.reload();
  await screen.getByText("$").first().waitFor();
  await type("echo still-$x");
  await screen.getByText("still-42", { exact: true }).waitFor();
  await page.getByRole("button", { name: "New" }).click();
  await page.getByRole("tab", { name: "main-2" }).waitFor();
  await screen.getByText("$").first().waitFor();
  await type("echo other-$x-");
  await screen.getByText("other--", { exact: true }).waitFor();
  await checkAccess(page, "terminals");

  await tab("Processes");
  await page.getByText("svc-terminal-main-2").waitFor();
  await checkAccess(page, "processes");

  await tab("Files");
  await page.getByRole("button", { name: ".bashrc", exact: true }).waitFor();
  const dropped = await page.evaluateHandle(
    '(() => { const data = new DataTransfer(); data.items.add(new File(["dropped text"], "<b>drop.txt")); return data; })()',
  );
  await page.dispatchEvent(".files", "drop", { dataTransfer: dropped });
  await page.getByRole("button", { name: "<b>drop.txt", exact: true }).click();
  const editor = page.getByLabel("Text of <b>drop.txt");
  assert.equal(await editor.inputValue(), "dropped text");
  await checkAccess(page, "a file");
  await editor.fill("edited");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Saved").waitFor();
  await page.keyboard.press("Escape");
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download <b>drop.txt" }).click()]);
  const chunks: Buffer[] = [];
  for await (const chunk of await download.createReadStream()) chunks.push(chunk as Buffer);
  assert.equal(Buffer.concat(chunks).toString(), "edited");
  await checkAccess(page, "files");

  await tab("Metrics");
  await page.getByText("CPU, of").waitFor();
  await checkAccess(page, "metrics");

  await tab("Overview");
  await page.getByRole("button", { name: "Extend" }).click();
  await page.getByLabel("Minutes from now").fill("55");
  await page.getByRole("button", { name: "Set" }).click();
  await page.getByText("time to live set").waitFor();
  await page.getByText("54 min").waitFor();
});

void test("markup in metadata, logs and terminal output stays text", need, async () => {
  const evil = '<img src=x onerror="document.title=1">';
  const { sandboxID } = await node.call(createSandbox, { templateID: "base", metadata: { run: evil } });
  const envd = client.envd(await client.get(sandboxID));
  for await (const _ of envd.start({ cmd: "/bin/sh", args: ["-c", `echo '${evil}<script>document.title=2</script>'`] }));
  envd.close();
  await page.goto(`${node.url}/console/sandboxes`);
  await row(sandboxID).getByText(evil).waitFor();
  await page.goto(`${node.url}/console/sandboxes/${sandboxID}/log`);
  await page.locator(".message").getByText("<script>document.title=2</script>").first().waitFor();
  await checkAccess(page, "the log");
  assert.match(await page.title(), new RegExp(sandboxID));
  assert.equal(await page.locator("main img").count(), 0);
});

void test("a denied host shows the rule that allows it, and one click puts it into force", need, async () => {
  const { sandboxID } = await node.call(createSandbox, { templateID: "base", allow_internet_access: false });
  const envd = client.envd(await client.get(sandboxID));
  for await (const _ of envd.start({ cmd: "/bin/sh", args: ["-c", "getent hosts denied.example; true"] }));
  envd.close();
  await page.goto(`${node.url}/console/sandboxes/${sandboxID}/network`);
  await page.getByRole("button", { name: "Allow denied.example" }).click();
  await page.getByRole("cell", { name: "allowed" }).waitFor();
  const { network, allowInternetAccess } = await client.get(sandboxID);
  assert.deepEqual(network?.allowOut, ["denied.example"]);
  assert.equal(allowInternetAccess, false, "the rest stays closed");
  await checkAccess(page, "the network");
});

void test("the audit log shows who changed what and which keys were refused, and its filter finds one sandbox", need, async () => {
  const { sandboxID } = await node.call(createSandbox, { templateID: "base" });
  assert.equal((await fetch(`${node.url}/sandboxes/${sandboxID}`, { method: "DELETE", headers: { "x-api-key": "sdk_wrong" } })).status, 401);
  await client.delete(sandboxID);
  await page.goto(`${node.url}/console/audit`);
  await page.getByLabel("Filter the audit log").fill(sandboxID);
  for (const result of ["401 UNAUTHENTICATED", "204"]) await page.getByRole("row").filter({ hasText: sandboxID }).getByText(result).first().waitFor();
  await checkAccess(page, "the audit log");
});

void test("an open page reports that its node is down, and continues without a sign-in when the node is back", need, async () => {
  await page.goto(`${node.url}/console/sandboxes`);
  await page.getByText("live", { exact: true }).waitFor();
  await node.kill("SIGKILL");
  await page.getByRole("alert").getByText("The server does not answer").waitFor();
  await node.start();
  await page.getByText("live", { exact: true }).waitFor();
  assert.equal(await page.getByRole("alert").count(), 0);
  const { sandboxID } = await node.call(createSandbox, { templateID: "base" });
  await row(sandboxID).getByText("running").waitFor();
});

void test("signing out ends the session in every tab, and its cookie is worth nothing afterwards", need, async () => {
  const other = await page.context().newPage();
  await other.goto(`${node.url}/console/sandboxes`);
  await other.getByText("live", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("API key").waitFor();
  await other.getByLabel("API key").waitFor();
});

void test("no page reported a script error or a violation of its content security policy", need, () => {
  assert.deepEqual(browser.errors, []);
});
