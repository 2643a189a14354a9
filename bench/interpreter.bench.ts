// The code interpreter: from create to the first answer out of the pool, warm code against the same kernel without the server, memory when idle.
//
// SVC_BENCH_INTERPRETER=small builds the template without its libraries, which start no sooner but take minutes to install.
import { setTimeout as sleep } from "node:timers/promises";
import { Sandbox } from "@e2b/code-interpreter";
import { SvcClient } from "@svc/contract/client.ts";
import { buildSmallInterpreter, interpreterRecipe } from "@svc/harness/interpreter-template.ts";
import { startNode, type TestNode } from "@svc/harness/node.ts";
import { until } from "@svc/harness/until.ts";
import { cgroupBytes } from "./density.ts";
import { median, percentile, progress, type Row, report } from "./report.ts";

const CREATES = 40;
const POOL = 8;
const RUNS = 120;
const WARM_UP = 20;
const IDLE = 10;
const IDLE_MS = 60_000;

/** Measures the same code by jupyter_client from inside the sandbox: from its request to the kernel's idle message. */
const directly = `
import glob, json, statistics, time
from jupyter_client import BlockingKernelClient
kernel = BlockingKernelClient(connection_file=glob.glob("/tmp/.svc-interpreter/kernels/*.json")[0])
kernel.load_connection_file(); kernel.start_channels(); kernel.wait_for_ready(timeout=60)
def run():
    begin = time.perf_counter()
    sent = kernel.execute("1+1")
    while True:
        message = kernel.get_iopub_msg(timeout=30)
        if message["parent_header"].get("msg_id") == sent and message["content"].get("execution_state") == "idle":
            return (time.perf_counter() - begin) * 1000
print(json.dumps([run() for _ in range(${RUNS})]))
`;

const rows: Row[] = [];
const raw: Record<string, unknown> = {};
const connection = (node: TestNode) => ({ apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey, timeoutMs: 900_000 });

async function built(node: TestNode): Promise<void> {
  if (process.env["SVC_BENCH_INTERPRETER"] === "small") return buildSmallInterpreter(node);
  const { templates } = new SvcClient({ baseURL: node.url, apiKey: node.apiKey });
  await Sandbox.create(connection(node)).then(
    (sandbox) => sandbox.kill(),
    () => undefined,
  );
  await until(
    "the template is built",
    async () => {
      const { builds } = await templates.get(interpreterRecipe.name);
      if (builds[0]?.status === "error") throw new Error("the template was not built; svc template logs says why");
      return builds[0]?.status === "ready" ? true : undefined;
    },
    1_000,
    1_800_000,
  );
}

async function poolReady(node: TestNode): Promise<void> {
  await until("the pool is full", async () => {
    const metrics = await (await fetch(`${node.url}/metrics`)).text();
    const ready = new RegExp(`^svc_node_pool_sandboxes\\{[^}]*template="${interpreterRecipe.name}"[^}]*\\} (\\d+)`, "m").exec(metrics)?.[1];
    return Number(ready ?? 0) >= POOL ? true : undefined;
  });
}

async function firstAnswers(node: TestNode): Promise<void> {
  const times: number[] = [];
  for (let count = 0; count < CREATES; count++) {
    // The pool is the matter here, so it is full at each create.
    if (count % POOL === 0) await poolReady(node);
    const begin = performance.now();
    const sandbox = await Sandbox.create(connection(node));
    const { text } = await sandbox.runCode("1+1");
    times.push(performance.now() - begin);
    if (text !== "2") throw new Error(`the first answer is ${text}`);
    await sandbox.kill();
  }
  raw["firstAnswerMs"] = times;
  const what = `create ${interpreterRecipe.name} to the first runCode answer, pool`;
  rows.push({ what: `${what}: p50`, value: median(times), unit: "ms", goal: { atMost: 120 }, samples: times.length });
  rows.push({ what: `${what}: p99`, value: percentile(times, 0.99), unit: "ms", goal: { atMost: 400 }, samples: times.length });
}

async function warmCode(node: TestNode): Promise<void> {
  const sandbox = await Sandbox.create(connection(node));
  await sandbox.files.write("/tmp/directly.py", directly);
  const served: number[] = [];
  const direct: number[] = [];
  // Interleaved, since the machine's speed changes within minutes.
  for (let round = 0; round < 4; round++) {
    for (let run = 0; run < RUNS / 4 + WARM_UP; run++) {
      const begin = performance.now();
      await sandbox.runCode("1+1");
      if (run >= WARM_UP) served.push(performance.now() - begin);
    }
    const { stdout } = await sandbox.commands.run("python3 /tmp/directly.py");
    direct.push(...(JSON.parse(stdout) as number[]).slice(WARM_UP));
  }
  await sandbox.kill();
  raw["warmMs"] = { served, direct };
  rows.push({
    what: "runCode(1+1) warm, over jupyter_client in the sandbox: p50",
    value: median(served) - median(direct),
    unit: "ms",
    goal: { atMost: 5 },
    samples: served.length,
    note: `${median(served).toFixed(1)} against ${median(direct).toFixed(1)} ms`,
  });
}

async function idleMemory(node: TestNode): Promise<void> {
  const bytes = () => cgroupBytes(node.home) ?? Number.NaN;
  const answered = async () => {
    const sandbox = await Sandbox.create(connection(node));
    await sandbox.runCode("1+1");
    return sandbox;
  };
  const first = await answered();
  await sleep(IDLE_MS);
  const before = bytes();
  const more: Sandbox[] = [];
  for (let count = 0; count < IDLE; count++) more.push(await answered());
  await sleep(IDLE_MS);
  const each = (bytes() - before) / IDLE / 1e6;
  raw["idle"] = { before, each };
  await Promise.all([first, ...more].map((sandbox) => sandbox.kill()));
  rows.push({ what: `each of ${IDLE} further idle sandboxes that ran code, by cgroup`, value: each, unit: "MB", goal: { atMost: 90 } });
}

{
  await using node = await startNode({ runtime: "gvisor", internet: true, flags: [`--pool.size=${POOL}`, "--network.pool_size=4", "--pool.precreated=2"] });
  progress("building the template");
  await built(node);
  await Sandbox.create(connection(node)).then((sandbox) => sandbox.kill());
  progress("creates out of the pool");
  await firstAnswers(node);
  progress("warm code");
  await warmCode(node);
  progress("memory of idle sandboxes");
  await node.restart("SIGTERM", { flags: ["--pool.size=0", "--pool.precreated=0"] });
  await idleMemory(node);
}
report("interpreter", rows, raw);
