// The pictures of the guide: each view of a console with real sandboxes, engines and a store, in both themes.
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { SvcClient } from "@svc/contract/client.ts";
import { endWithUs } from "@svc/harness/children.ts";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { startNode } from "@svc/harness/node.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { endProcess, startProcess } from "@svc/harness/server-process.ts";
import type { Browser } from "playwright-core";
import { progress } from "./report.ts";

const SIZE = { width: 1080, height: 620 };
const main = (file: string) => fileURLToPath(new URL(`../packages/${file}`, import.meta.url));
const TOKENS = Array.from({ length: 96 }, (_, index) => index + 1);

export async function takePictures(browser: Browser, folder: string): Promise<void> {
  progress("pictures");
  const home = makeHome();
  const [indexer = 0, store = 0, rpc = 0] = await freePorts(3);
  await using node = await startNode({
    runtime: "gvisor",
    flags: [`--console.indexer_url=http://127.0.0.1:${indexer}`, `--console.store_url=http://127.0.0.1:${store}`, "--console.store_admin_url="],
  });
  const servers = [
    await startProcess(main("indexer/src/main.ts"), [`--listen=127.0.0.1:${indexer}`, `--home=${home}`], {}, () => undefined),
    await startProcess(
      main("store/src/master/main.ts"),
      [`--listen=127.0.0.1:${store}`, `--home=${home}/store`, "--store.rpc_address=127.0.0.1", `--store.rpc_port=${rpc}`],
      {},
      () => undefined,
    ),
  ];
  /** The first engine has served the whole prompt of the picture, the second one a third of it. */
  const trace = (at: number) => {
    const file = join(home, `trace-${at}.jsonl`);
    writeFileSync(file, `${JSON.stringify({ timestamp: 0, token_ids: at === 0 ? TOKENS : TOKENS.slice(0, 32) })}\n`);
    return file;
  };
  const engines = ["engine-a", "engine-b"].map((instance, at) => {
    const words = ["simulate", "--model", "demo", "--instance", instance, "--trace", trace(at), "--stay", "--url", `http://127.0.0.1:${indexer}`];
    const engine = spawn(process.execPath, [main("indexer/src/cli/main.ts"), ...words], { stdio: "ignore" });
    endWithUs(engine);
    return engine;
  });
  const client = new SvcClient({ baseURL: node.url, apiKey: node.apiKey });
  const run = async (sandboxID: string, command: string) => {
    const envd = client.envd(await client.get(sandboxID));
    for await (const _ of envd.start({ cmd: "/bin/bash", args: ["-lc", command] })) {
      // Its output goes to the sandbox's log.
    }
    envd.close();
  };
  const made: string[] = [];
  for (let index = 0; index < 8; index++) {
    const { sandboxID } = await client.create({
      templateID: "base",
      timeout: 600 + 400 * index,
      metadata: { run: `rollout-${1 + (index >> 2)}`, step: String(index) },
    });
    made.push(sandboxID);
  }
  const [first = "", second = "", third = "", fourth = ""] = made;
  await run(
    first,
    "for test in parse plan apply; do echo running test_$test; done; echo 3 passed; mkdir -p project/src; echo 'print(42)' > project/main.py; touch project/README.md",
  );
  await client.pause(second);
  await client.delete(third);
  await client.fork(fourth, { count: 3 });
  await client.createSnapshot(fourth, { name: "prepared" });
  const views: readonly (readonly [name: string, path: string, wait: string])[] = [
    ["sandboxes", "/sandboxes", first],
    ["runs", "/sandboxes?group=run", "rollout-1"],
    ["sandbox", `/sandboxes/${first}`, "Timeline"],
    ["terminal", `/sandboxes/${first}/terminal`, "svc connect"],
    ["files", `/sandboxes/${first}/files?path=/home/user/project`, "main.py"],
    ["forks", "/forks", "prepared"],
    ["cache", `/cache?tokens=${TOKENS.join(",")}`, "engine-b"],
    ["health", "/health", "Requests a second"],
  ];
  for (const colorScheme of ["light", "dark"] as const) {
    const page = await (await browser.newContext({ viewport: SIZE, colorScheme })).newPage();
    await page.goto(`${node.url}/console`);
    await page.getByLabel("API key").fill(node.apiKey);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByText("live", { exact: true }).waitFor();
    for (const [name, path, wait] of views) {
      await page.goto(`${node.url}/console${path}`);
      await page.getByText(wait).first().waitFor();
      if (name === "terminal") {
        await page.waitForTimeout(1_500);
        await page.keyboard.type("clear; ls project; python3 project/main.py\n");
      }
      if (name === "cache") await page.getByRole("button", { name: "Explain" }).click();
      await page.waitForTimeout(1_000);
      await page.screenshot({ path: join(folder, `${name}-${colorScheme}.png`) });
    }
    await page.context().close();
  }
  for (const engine of engines) engine.kill("SIGKILL");
  for (const { child } of servers) await endProcess(child, "SIGKILL");
  removeHome(home);
}
