// The desktop: from create to the first frame out of the pool, by E2B's unmodified SDK and by one command, and what a desktop takes.
//
// SVC_BENCH_DESKTOP_URL and SDK_API_KEY name a node that has the template already, with a pool; building it takes minutes.
import { Sandbox } from "@e2b/desktop";
import { startNode, type TestNode } from "@svc/harness/node.ts";
import { buildsOf, recipeBuilt } from "@svc/harness/recipe-build.ts";
import { until } from "@svc/harness/until.ts";
import { Sandbox as PlainSandbox } from "e2b";
import { median, percentile, progress, type Row, report } from "./report.ts";

const CREATES = 24;
const POOL = 4;

type Entry = Pick<TestNode, "url" | "apiKey">;

const rows: Row[] = [];
const raw: Record<string, unknown> = {};
const connection = ({ url, apiKey }: Entry) => ({ apiUrl: url, sandboxUrl: url, apiKey, timeoutMs: 900_000 });

async function poolReady({ url }: Entry): Promise<void> {
  await until("the pool is full", async () => {
    const metrics = await (await fetch(`${url}/metrics`)).text();
    const ready = /^svc_node_pool_sandboxes\{[^}]*template="desktop"[^}]*\} (\d+)/m.exec(metrics)?.[1];
    return Number(ready ?? 0) >= POOL ? true : undefined;
  });
}

/** Measures `act` on new sandboxes, each from a full pool. */
async function measured(node: Entry, act: () => Promise<{ kill(): Promise<unknown> }>): Promise<number[]> {
  const times: number[] = [];
  for (let count = 0; count < CREATES; count++) {
    if (count % POOL === 0) await poolReady(node);
    const begin = performance.now();
    const sandbox = await act();
    times.push(performance.now() - begin);
    await sandbox.kill();
  }
  return times;
}

async function run(node: Entry): Promise<void> {
  const [build] = await buildsOf(node, "desktop");
  raw["build"] = build;
  await Sandbox.create("desktop", connection(node)).then((sandbox) => sandbox.kill());
  progress("first frames by one command");
  const byCommand = await measured(node, async () => {
    const sandbox = await PlainSandbox.create("desktop", connection(node));
    await sandbox.commands.run("scrot /tmp/frame.png");
    if ((await sandbox.files.read("/tmp/frame.png", { format: "bytes" })).length < 20_000) throw new Error("the frame is empty");
    return sandbox;
  });
  rows.push({ what: "create desktop to the first frame, pool: p50", value: median(byCommand), unit: "ms", goal: { atMost: 300 }, samples: CREATES });
  rows.push({ what: "create desktop to the first frame, pool: p99", value: percentile(byCommand, 0.99), unit: "ms", samples: CREATES });
  progress("first frames by the desktop SDK");
  const bySdk = await measured(node, async () => {
    const desktop = await Sandbox.create("desktop", connection(node));
    if ((await desktop.screenshot()).length < 20_000) throw new Error("the frame is empty");
    return desktop;
  });
  rows.push({ what: "@e2b/desktop: create and screenshot, pool: p50", value: median(bySdk), unit: "ms", samples: CREATES, note: "six commands" });
  raw["firstFrameMs"] = { byCommand, bySdk };
  const sandbox = await PlainSandbox.create("desktop", connection(node));
  const { stdout } = await sandbox.commands.run("free -m | awk '/Mem/ {print $3}'");
  rows.push({ what: "memory that an idle desktop uses, as its guest counts", value: Number(stdout), unit: "MB" });
  await sandbox.kill();
}

const given = process.env["SVC_BENCH_DESKTOP_URL"];
if (given !== undefined) await run({ url: given, apiKey: process.env["SDK_API_KEY"] ?? "" });
else {
  await using node = await startNode({
    runtime: "gvisor",
    internet: true,
    flags: [`--pool.size=${POOL}`, "--network.pool_size=4", "--pool.precreated=2"],
  });
  progress("building the template");
  await Sandbox.create("desktop", connection(node)).then(
    (sandbox) => sandbox.kill(),
    () => undefined,
  );
  await recipeBuilt(node, "desktop");
  await run(node);
}
report("desktop", rows, raw);
