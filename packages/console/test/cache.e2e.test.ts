// The console's view of the cache, against a real indexer, master and admin server, and without them.
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { endWithUs } from "@svc/harness/children.ts";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { needs } from "@svc/harness/needs.ts";
import { startNode, type TestNode } from "@svc/harness/node.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { endProcess, type Started, startProcess } from "@svc/harness/server-process.ts";
import { until } from "@svc/harness/until.ts";
import type { Page } from "playwright-core";
import { CHROMIUM, checkAccess, openBrowser, type TestBrowser } from "./browser.ts";

const need = needs("root", "runsc", "envd", CHROMIUM);
const main = (file: string) => fileURLToPath(new URL(`../../${file}`, import.meta.url));
const TOKENS = Array.from({ length: 48 }, (_, index) => index + 1).join(",");
const home = makeHome();
let node: TestNode;
let browser: TestBrowser;
let page: Page;
let urls: readonly string[];
const servers: Started[] = [];
let engine: ChildProcess | undefined;

before(async () => {
  if (need.skip !== false) return;
  const [indexer = 0, store = 0, admin = 0, metadata = 0] = await freePorts(4);
  urls = [indexer, store, admin, metadata].map((port) => `http://127.0.0.1:${port}`);
  const flags = ["indexer", "store", "store_admin", "metadata"].map((name, at) => `--console.${name}_url=${urls[at]}`);
  [node, browser] = await Promise.all([startNode({ runtime: "gvisor", flags }), openBrowser()]);
  page = await browser.signedIn(node, "/cache");
});
after(async () => {
  await browser?.[Symbol.asyncDispose]();
  engine?.kill("SIGKILL");
  for (const { child } of servers) await endProcess(child, "SIGKILL");
  await node?.[Symbol.asyncDispose]();
  removeHome(home);
});

const start = async (file: string, at: number, flags: readonly string[]) => {
  servers.push(await startProcess(main(file), [`--listen=127.0.0.1:${portOf(at)}`, ...flags], {}, () => undefined));
};
const portOf = (at: number) => new URL(urls[at] ?? "").port;

void test("a cache server that does not answer is shown as a line with the command that starts it", need, async () => {
  await page.getByText("The cache indexer is not there").waitFor();
  await page.getByText("The cache store's master is not there").waitFor();
  await page.getByText("The store's admin server is not there").waitFor();
  await page.getByText("./svc indexer", { exact: true }).waitFor();
  await checkAccess(page, "a cache without servers");
});

void test("engines show their blocks, lag and state, and a prompt typed in shows how many blocks each one holds", need, async () => {
  await start("indexer/src/main.ts", 0, [`--home=${home}`]);
  await page.getByText("No publisher is registered.").waitFor();
  engine = spawn(
    process.execPath,
    [main("indexer/src/cli/main.ts"), "simulate", "--model", "demo", "--instance", "engine-a", "--prompts", "20", "--stay", "--url", urls[0] ?? ""],
    {
      stdio: "ignore",
    },
  );
  endWithUs(engine);
  await page.getByRole("rowheader", { name: "engine-a" }).waitFor();
  await until("its events arrive", async () =>
    (await page.getByRole("row").filter({ hasText: "engine-a" }).getByText("complete").count()) > 0 ? true : undefined,
  );
  await page.getByLabel("Tokens of the prompt").fill(TOKENS);
  await page.getByRole("button", { name: "Explain" }).click();
  await page.getByText("0 of 3 blocks").waitFor();
  await page.getByText("no instance has it", { exact: false }).first().waitFor();
  await checkAccess(page, "engines");
  await page.getByLabel("Tokens of the prompt").fill("1, two");
  await page.getByRole("button", { name: "Explain" }).click();
  await page.getByText('expected numbers, got "two"').waitFor();
  engine.kill("SIGKILL");
  await page.getByRole("row").filter({ hasText: "engine-a" }).getByText("not connected").waitFor();
});

void test("the store's master and the admin server show fill, segments, devices and migrations", need, async () => {
  const [rpc = 0] = await freePorts(1);
  await start("store/src/master/main.ts", 1, [`--home=${home}/store`, "--store.rpc_address=127.0.0.1", `--store.rpc_port=${rpc}`]);
  await page.getByText("0 keys, 0 unfinished puts").waitFor();
  await start("store-admin/src/main.ts", 2, [`--home=${home}/admin`, `--master=127.0.0.1:${rpc}`]);
  await page.getByText("There is no device.").waitFor();
  await page.getByText("There is no migration.").waitFor();
  const metadata = ["import(process.argv[1]).then(({ main }) => main(process.argv.slice(2)))", main("store/src/metadata/main.ts")];
  servers.push(await startProcess("-e", [...metadata, `--listen=127.0.0.1:${portOf(3)}`, `--home=${home}/metadata`], {}, () => undefined));
  await page.getByText("No transfer engine has registered a segment here.").waitFor();
  const put = (key: string, record: object) => fetch(`${urls[3]}/metadata?key=${key}`, { method: "PUT", body: JSON.stringify(record) });
  const buffers = [{ name: "cpu:0", addr: 4096, length: 2 ** 30, rkey: [] }];
  await put("svc/ram/engine-7", { server_name: "engine-7", protocol: "tcp", devices: [], priority_matrix: {}, buffers });
  await page.getByRole("row").filter({ hasText: "engine-7" }).getByText("has no address").waitFor();
  await put("svc/rpc_meta/engine-7", { ip_or_host_name: "127.0.0.1", rpc_port: 12001 });
  await page.getByRole("row").filter({ hasText: "engine-7" }).getByText("127.0.0.1:12001").waitFor();
  await page.getByRole("row").filter({ hasText: "engine-7" }).getByText("1.0 GB").waitFor();
  await checkAccess(page, "a cache with all servers");
});

void test("the console asks only the addresses of its settings: a redirect is not followed, and a page cannot name another path", need, async () => {
  const asked: string[] = [];
  const other = createServer((incoming, response) => {
    asked.push(incoming.url ?? "");
    response.end("{}");
  });
  await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
  const target = `http://127.0.0.1:${(other.address() as AddressInfo).port}/`;
  if (servers[0] !== undefined) await endProcess(servers[0].child, "SIGKILL");
  const redirecting = createServer((_, response) => response.writeHead(302, { location: target }).end());
  await new Promise<void>((resolve) => redirecting.listen(Number(portOf(0)), "127.0.0.1", resolve));
  await page.getByText("The cache indexer is not there").waitFor();
  const tried = (await page.evaluate(`(async () => {
    const headers = { "x-svc-console": localStorage.getItem("svc-console-half"), "content-type": "application/json" };
    const post = (path, body) => fetch("/console/api/" + path, { method: "POST", headers, body: JSON.stringify(body) }).then((r) => r.status);
    return [await post("cache-act", { act: "constructor", id: "x" }), await post("cache-act", { act: "drainDevice", id: "../../x" }), await post("explain", { url: ${JSON.stringify(target)} })];
  })()`)) as number[];
  assert.equal(tried[0], 404);
  assert.ok((tried[1] ?? 0) >= 400 && (tried[2] ?? 0) >= 400, String(tried));
  assert.deepEqual(asked, []);
  redirecting.close();
  other.close();
  assert.deepEqual(browser.errors, []);
});
