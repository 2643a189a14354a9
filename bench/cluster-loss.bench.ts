// The effect of a killed node on the other nodes' sandboxes: their requests during the kill, during the kill of a node that no gateway
// knows, and without one. Needs root with runc; takes about ROUNDS times 12 s. `./svc bench cluster-loss`; part of `./svc bench cluster`.
import { setTimeout as sleep } from "node:timers/promises";
import { ENVD_PORT } from "@svc/contract/envd-http.ts";
import { createSandbox } from "@svc/contract/sandbox.ts";
import { allUp, startFrontedNodes } from "@svc/harness/fronted-nodes.ts";
import { startNode, type TestNode } from "@svc/harness/node.ts";
import { until } from "@svc/harness/until.ts";
import { median, percentile, progress, type Row, report } from "./report.ts";

const ROUNDS = 20;
const WINDOW_MS = 400;
/** The pause before a window, for the effects of the previous one to end. */
const SETTLE_MS = 2_000;
const ASK_MS = 2;
/** Ten times the maximum wait of a request while the gateway does not yet know that its node is lost. */
const ASK_BOUND_MS = 20_000;

await using stack = new AsyncDisposableStack();
const { gateway, nodes } = stack.use(await startFrontedNodes({ flags: ["--gateway.node_silence_ms=700"] }));
const stranger = stack.use(await startNode({ runtime: "runc" }));
const [lost, other] = await Promise.all([nodes[0] as TestNode, nodes[1] as TestNode].map(sandboxOn));
await sandboxOn(stranger);

type Held = { readonly node: TestNode; readonly headers: Readonly<Record<string, string>> };
async function sandboxOn(node: TestNode): Promise<Held> {
  const { sandboxID, envdAccessToken = "" } = await node.call(createSandbox, { templateID: "base", timeout: 3_000 });
  return { node, headers: { "x-svc-sandbox-id": sandboxID, "x-svc-target-port": String(ENVD_PORT), "x-access-token": envdAccessToken } };
}
/** Reads the answer to its end, so that its connection serves the next request. */
async function ask({ headers }: Held): Promise<number> {
  const response = await fetch(`${gateway.url}/health`, { headers, signal: AbortSignal.timeout(ASK_BOUND_MS) });
  await response.arrayBuffer();
  return response.status;
}

/** Every window has the same load: sequential requests to one sandbox, and a request to the lost one every ASK_MS. */
async function look(act: () => void): Promise<{ readonly noticedMs: number | undefined; readonly others: readonly number[] }> {
  const others: number[] = [];
  let noticedMs: number | undefined;
  const begin = performance.now();
  const passed = () => performance.now() - begin;
  act();
  const watching = async () => {
    while (passed() < WINDOW_MS) {
      const from = passed();
      await ask(other as Held);
      others.push(passed() - from);
    }
  };
  const asking = async () => {
    for (; passed() < WINDOW_MS; await sleep(ASK_MS)) if ((await ask(lost as Held)) === 502) noticedMs ??= passed();
  };
  await Promise.all([watching(), asking()]);
  return { noticedMs, others };
}

const kinds = ["quiet", "a node that no gateway knows is killed", "another node of theirs is killed"] as const;
const took = new Map<string, number[]>(kinds.map((kind) => [kind, []]));
const noticed: number[] = [];
for (let round = 0; round < ROUNDS; round++) {
  progress(`round ${round + 1} of ${ROUNDS}`);
  for (const kind of kinds) {
    await sleep(SETTLE_MS);
    const killed = kind === "quiet" ? undefined : kind === kinds[1] ? stranger : (lost as Held).node;
    const found = await look(() => killed !== undefined && process.kill(killed.pid, "SIGKILL"));
    took.get(kind)?.push(...found.others);
    if (killed === undefined) continue;
    if (killed !== stranger) noticed.push(found.noticedMs ?? Number.NaN);
    await killed.restart("SIGKILL");
    await allUp(gateway);
    await until("the lost sandbox", async () => ((await ask(lost as Held)) === 204 ? true : undefined));
  }
}
const p99 = (kind: (typeof kinds)[number]) => percentile(took.get(kind) ?? [], 0.99);
const rows: Row[] = kinds.map((kind) => ({ what: `others' requests, p99: ${kind}`, value: p99(kind), unit: "ms", samples: took.get(kind)?.length ?? 0 }));
rows.push({ what: "killed node to quiet", value: p99(kinds[2]) / p99("quiet"), unit: "times", goal: { atMost: 1.5 } });
rows.push({ what: "killed stranger to quiet: what the machine takes for it", value: p99(kinds[1]) / p99("quiet"), unit: "times" });
rows.push({
  what: "the killed node's requests are answered 502 after, p50",
  value: median(noticed),
  unit: "ms",
  goal: { atMost: 50 },
  samples: noticed.length,
});
report("cluster-loss", rows, { took: Object.fromEntries(took), noticed });
