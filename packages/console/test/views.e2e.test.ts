// The console of a gateway in a real Chromium: forks, templates and builds, nodes and their drain, health.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { SvcClient } from "@svc/contract/client.ts";
import { createSandbox } from "@svc/contract/sandbox.ts";
import { KEY as apiKey, type FrontedNodes, startFrontedNodes } from "@svc/harness/fronted-nodes.ts";
import type { TestGateway } from "@svc/harness/gateway.ts";
import { needs } from "@svc/harness/needs.ts";
import type { TestNode } from "@svc/harness/node.ts";
import { until } from "@svc/harness/until.ts";
import type { Page } from "playwright-core";
import { CHROMIUM, checkAccess, openBrowser, type TestBrowser } from "./browser.ts";

const need = needs("root", "runsc", "envd", "base", CHROMIUM);
let deployment: FrontedNodes;
let nodes: readonly TestNode[] = [];
let gateway: TestGateway;
let browser: TestBrowser;
let page: Page;
let client: SvcClient;

before(async () => {
  if (need.skip !== false) return;
  deployment = await startFrontedNodes({ node: { runtime: "gvisor" } });
  ({ nodes, gateway } = deployment);
  client = new SvcClient({ baseURL: gateway.url, apiKey });
  browser = await openBrowser();
  page = await browser.signedIn(gateway);
});
after(async () => {
  await browser?.[Symbol.asyncDispose]();
  await deployment?.[Symbol.asyncDispose]();
});

const go = (title: string) => page.getByRole("navigation", { name: "Views" }).getByRole("link", { name: title }).click();

void test("the table of a gateway shows the sandboxes of all nodes, and a terminal opens through it", need, async () => {
  const made = await Promise.all(Array.from({ length: 4 }, () => client.create({ templateID: "base" })));
  for (const { sandboxID } of made) await page.getByRole("row").filter({ hasText: sandboxID }).getByText("running").waitFor();
  const [first] = made;
  await page.goto(`${gateway.url}/console/sandboxes/${first?.sandboxID}/terminal`);
  const screen = page.locator(".xterm-rows");
  await screen.getByText("$").first().waitFor();
  await page.keyboard.type("echo via-$((40+2))\n");
  await screen.getByText("via-42", { exact: true }).waitFor();
  await Promise.all(made.map(({ sandboxID }) => client.delete(sandboxID)));
});

void test("a running sandbox is forked from its page, and the picture of forks and snapshots shows it and acts on it", need, async () => {
  const { sandboxID } = await client.create({ templateID: "base" });
  await page.goto(`${gateway.url}/console/sandboxes/${sandboxID}`);
  await page.getByRole("button", { name: "Fork" }).click();
  await page.getByLabel("Number of copies").fill("2");
  await page.getByRole("dialog").getByRole("button", { name: "Fork" }).click();
  await page.getByText("Forked").first().waitFor();
  await page.getByRole("button", { name: "Snapshot" }).click();
  await page.getByLabel("Name").fill("kept");
  await page.getByRole("button", { name: "Take snapshot" }).click();
  await page.getByText("Took a snapshot").waitFor();
  await go("Forks");
  const tree = page.locator(".tree");
  await tree.getByRole("button", { name: "kept" }).waitFor();
  assert.equal(await tree.locator("button").count(), 4, "the source, two forks and a snapshot");
  await tree.getByRole("button", { name: sandboxID }).click();
  await checkAccess(page, "forks");
  await page.getByRole("button", { name: "Delete those below" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText("Deleted 2 sandboxes.").waitFor();
  await tree.getByRole("button", { name: "kept" }).click();
  await page.getByRole("button", { name: "Create from it" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Create" }).click();
  await page.waitForURL(/\/console\/sandboxes\/[a-z0-9]+$/);
});

void test("a build is watched while it runs, and a Dockerfile that cannot be built is refused with its line", need, async () => {
  await go("Templates");
  await page.getByRole("link", { name: "base" }).first().waitFor();
  await checkAccess(page, "templates");
  await page.getByRole("button", { name: "Build" }).click();
  await page.getByLabel("Name").fill("copies");
  await page.getByLabel("Dockerfile").fill("FROM debian:bookworm\nCOPY a b\n");
  await page.getByRole("dialog").getByRole("button", { name: "Build" }).click();
  await page.getByText("which the console does not have").waitFor();
  await page.getByLabel("Dockerfile").fill("FROM debian:bookworm\nONBUILD RUN true\n");
  await page.getByRole("dialog").getByRole("button", { name: "Build" }).click();
  await page.getByText("line 2").waitFor();
  await checkAccess(page, "the form of a build");
  // No registry answers there, so the build fails while it is watched.
  await page.getByLabel("Dockerfile").fill("FROM 127.0.0.1:1/nothing:here\nRUN true\n");
  await page.getByRole("dialog").getByRole("button", { name: "Build" }).click();
  await page.locator("h2").getByText("error").waitFor();

  const requested = await client.templates.request({ name: "watched" });
  await client.templates.start({ ...requested, fromTemplate: "base", steps: [{ type: "RUN", args: ["echo built-here"] }] });
  await page.goto(`${gateway.url}/console/templates/${requested.templateID}`);
  await page.locator("h2").getByText("ready").waitFor();
  await page.locator("summary").getByText("RUN", { exact: false }).first().click();
  await page.getByText("built-here").last().waitFor();
  await page.getByRole("button", { name: "Tag" }).click();
  await page.getByRole("dialog").getByLabel("Tag").fill("stable");
  await page.getByRole("dialog").getByRole("button", { name: "Tag" }).click();
  await page.getByText("stable", { exact: true }).waitFor();
  await checkAccess(page, "a template");
});

void test("a node is drained and made ready again from the view of nodes", need, async () => {
  await go("Nodes");
  const [first] = await client.nodes();
  await page
    .getByRole("row")
    .filter({ hasText: first?.id ?? "" })
    .getByText("ready")
    .waitFor();
  await checkAccess(page, "nodes");
  await page.getByRole("button", { name: `Drain ${first?.id}` }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Drain" }).click();
  await page
    .getByRole("row")
    .filter({ hasText: first?.id ?? "" })
    .getByText("draining")
    .first()
    .waitFor();
  assert.equal((await client.nodes()).find(({ id }) => id === first?.id)?.status, "draining");
  await page.getByRole("button", { name: "Make ready" }).click();
  await page.getByRole("button", { name: `Drain ${first?.id}` }).waitFor();
});

void test("health shows the last hour's metrics, the latest events, and what the doctor says", need, async () => {
  await go("Health");
  await page.getByText("Requests a second").waitFor();
  await checkAccess(page, "the health of a gateway");
  const own = await browser.signedIn({ url: nodes[0]?.url ?? "", apiKey }, "/health");
  await own.getByRole("button", { name: "Check this machine" }).click();
  await own.getByRole("listitem").filter({ hasText: "gvisor" }).first().waitFor();
  await checkAccess(own, "the health of a node");
  await own.getByRole("button", { name: "Drain this node" }).click();
  await own.getByRole("dialog").getByRole("button", { name: "Drain" }).click();
  await own.getByRole("button", { name: "Make it ready again" }).click();
  await own.getByRole("button", { name: "Drain this node" }).waitFor();
  await own.context().close();
});

void test("a node that is lost behind the gateway is named while the page stays", need, async () => {
  await go("Nodes");
  await nodes[1]?.kill("SIGKILL");
  await page
    .getByText(/unhealthy|connecting/)
    .first()
    .waitFor();
  await nodes[1]?.start();
  await until("the node is back", async () => ((await client.nodes()).every(({ status }) => status === "ready") ? true : undefined));
  const { sandboxID } = await gateway.call(createSandbox, { templateID: "base" });
  await go("Sandboxes");
  await page.getByRole("row").filter({ hasText: sandboxID }).getByText("running").waitFor();
});

void test("the palette finds views, actions and sandboxes by the keyboard", need, async () => {
  await page.keyboard.press("Control+k");
  await page.getByLabel("Search views").fill("forks");
  await checkAccess(page, "the palette");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Forks and snapshots" }).waitFor();
  await page.keyboard.press("?");
  await page.getByRole("dialog").getByText("Create a sandbox").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.keyboard.press("g");
  await page.keyboard.press("h");
  await page.getByRole("heading", { name: "Health" }).waitFor();
});

void test("a narrow screen shows every view without scrolling sideways", need, async () => {
  await page.setViewportSize({ width: 390, height: 780 });
  for (const view of ["sandboxes", "forks", "templates", "nodes", "health"]) {
    await page.goto(`${gateway.url}/console/${view}`);
    await page.locator("h1").waitFor();
    const [wide, visible] = (await page.evaluate("[document.scrollingElement.scrollWidth, innerWidth]")) as [number, number];
    assert.ok(wide <= visible, `${view}: ${wide} pixels on a screen of ${visible}`);
    await checkAccess(page, `${view}, narrow`);
  }
  assert.deepEqual(browser.errors, []);
});
