// The cost of mutual TLS between gateway and node: the same requests through a plain pair and an encrypted one, interleaved in one run.
// Needs root with runc; takes about a minute. `./svc bench cluster-encryption`; part of `./svc bench cluster`.
import { Agent, request } from "node:http";
import { ENVD_PORT } from "@svc/contract/envd-http.ts";
import { listNodes } from "@svc/contract/nodes.ts";
import { createSandbox } from "@svc/contract/sandbox.ts";
import { startGateway, type TestGateway } from "@svc/harness/gateway.ts";
import { startNode } from "@svc/harness/node.ts";
import { makePeerCerts } from "@svc/harness/peer-certs.ts";
import { until } from "@svc/harness/until.ts";
import { median, percentile, progress, type Row, report } from "./report.ts";

const ROUNDS = 3_000;
const WARM_UP_ROUNDS = 300;
const BULK_ROUNDS = 20;
const BULK_BYTES = 32 * 1024 * 1024;
const KEY = "k".repeat(40);
const GOAL_MS = 0.3;
const env = { SVC_API_KEY: KEY, SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED: "s".repeat(40) };

await using stack = new AsyncDisposableStack();
const certs = stack.use(makePeerCerts());
const agent = new Agent({ keepAlive: true });
stack.defer(() => agent.destroy());

type Way = { readonly name: string; readonly gateway: TestGateway; readonly sandboxID: string; readonly token: string; readonly times: Times };
type Times = { readonly sandbox: number[]; readonly control: number[]; readonly upload: number[]; readonly download: number[] };

async function open(name: string, isSecure: boolean): Promise<Way> {
  const flags = (role: "node" | "gateway") => (isSecure ? [`--peer-certs=${certs.issue(role)}`] : []);
  const node = stack.use(await startNode({ runtime: "runc", isSecure, env, flags: flags("node") }));
  const gateway = stack.use(await startGateway({ nodes: [node.url], apiKey: KEY, flags: flags("gateway") }));
  await until("the node is ready", async () => ((await gateway.call(listNodes, {}))[0]?.status === "ready" ? true : undefined));
  const { sandboxID, envdAccessToken: token = "" } = await gateway.call(createSandbox, { templateID: "base", timeout: 3_000 });
  return { name, gateway, sandboxID, token, times: { sandbox: [], control: [], upload: [], download: [] } };
}

/** Sends one request on a connection that stays open, and reads the answer to its end. */
function ask({ gateway, sandboxID, token }: Way, path: string, kind: "sandbox" | "control", body?: Buffer): Promise<void> {
  const routing = { "x-svc-sandbox-id": sandboxID, "x-svc-target-port": String(ENVD_PORT), "x-access-token": token };
  const headers = { ...(kind === "sandbox" ? routing : { "x-api-key": KEY }), ...(body && { "content-type": "application/octet-stream" }) };
  return new Promise((resolve, reject) => {
    const sent = request(`${gateway.url}${path}`, { agent, method: body === undefined ? "GET" : "POST", headers }, (answer) => {
      if ((answer.statusCode ?? 500) > 299) reject(new Error(`${path}: ${answer.statusCode}`));
      answer.resume().once("end", resolve);
    });
    sent.once("error", reject).end(body);
  });
}

async function timed(into: number[], work: () => Promise<void>): Promise<void> {
  const begin = performance.now();
  await work();
  into.push(performance.now() - begin);
}

const ways = [await open("plain", false), await open("mutual TLS", true)];
const file = "/files?path=/tmp/bulk&username=user";
const bulk = Buffer.alloc(BULK_BYTES, 1);
for (let round = -WARM_UP_ROUNDS; round < ROUNDS; round++) {
  if (round % 1_000 === 0) progress(`round ${round} of ${ROUNDS}`);
  for (const way of round % 2 === 0 ? ways : [...ways].reverse()) {
    const keep = (list: number[]) => (round < 0 ? [] : list);
    await timed(keep(way.times.sandbox), () => ask(way, "/health", "sandbox"));
    await timed(keep(way.times.control), () => ask(way, `/sandboxes/${way.sandboxID}`, "control"));
  }
}
for (let round = 0; round < BULK_ROUNDS; round++) {
  progress(`bulk ${round + 1} of ${BULK_ROUNDS}`);
  for (const way of round % 2 === 0 ? ways : [...ways].reverse()) {
    await timed(way.times.upload, () => ask(way, file, "sandbox", bulk));
    await timed(way.times.download, () => ask(way, file, "sandbox"));
  }
}

const [plain, secure] = ways.map(({ times }) => times) as [Times, Times];
const rows: Row[] = [];
for (const [kind, what] of [
  ["sandbox", "a request to a sandbox"],
  ["control", "GET /sandboxes/ID"],
] as const) {
  for (const { name, times } of ways) {
    rows.push({ what: `${what}, ${name}, p50`, value: median(times[kind]), unit: "ms", samples: ROUNDS });
    rows.push({ what: `${what}, ${name}, p99`, value: percentile(times[kind], 0.99), unit: "ms", samples: ROUNDS });
  }
  rows.push({ what: `${what}: added p50`, value: median(secure[kind]) - median(plain[kind]), unit: "ms", goal: { atMost: GOAL_MS } });
}
for (const kind of ["upload", "download"] as const) {
  const rate = (times: Times) => BULK_BYTES / 1e6 / (median(times[kind]) / 1_000);
  rows.push({ what: `${kind} of 32 MiB, plain`, value: rate(plain), unit: "MB/s", samples: BULK_ROUNDS });
  rows.push({ what: `${kind} of 32 MiB, mutual TLS`, value: rate(secure), unit: "MB/s", samples: BULK_ROUNDS });
  rows.push({ what: `${kind}: ratio to plain`, value: rate(secure) / rate(plain), unit: "" });
}
report("cluster-encryption", rows, Object.fromEntries(ways.map(({ name, times }) => [name, times])));
