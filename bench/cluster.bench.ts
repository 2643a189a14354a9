// The gateway's cost and its reaction time: CPU and time per small request compared with nginx in front of the same nodes, bulk, creates,
// lost nodes. Needs nginx and wrk, both Debian packages, and root with runc. `./svc bench cluster`
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { ENVD_PORT } from "@svc/contract/envd-http.ts";
import type { SandboxAnswer } from "@svc/contract/fields.ts";
import { createSandbox, deleteSandbox } from "@svc/contract/sandbox.ts";
import { freeze, thaw } from "@svc/harness/freeze.ts";
import { allUp, startFrontedNodes } from "@svc/harness/fronted-nodes.ts";
import type { TestNode } from "@svc/harness/node.ts";
import { until } from "@svc/harness/until.ts";
import { Sandbox } from "e2b";
import { cpuSeconds, peakBytes } from "./process-usage.ts";
import { download, upload } from "./proxy-bulk.ts";
import { median, percentile, progress, type Row, report } from "./report.ts";

const rounds = 5;
const seconds = 3;
const connections = 16;
const bulkBytes = 1 << 30;
const sinkPort = 9003;
const creates = 20;
const deaths = 5;
/** Ten times the maximum wait of a request while the gateway does not yet know that its node is lost. */
const askBoundMs = 20_000;

const run = promisify(execFile);
await using stack = new AsyncDisposableStack();
const home = mkdtempSync(join(tmpdir(), "svc-bench-cluster-"));
stack.defer(() => rmSync(home, { recursive: true, force: true }));
const deployment = stack.use(await startFrontedNodes({ node: { flags: ["--sandbox.max_sandboxes=1000"] }, flags: ["--gateway.node_silence_ms=700"] }));
const { gateway, nodes } = deployment;
const held = await Promise.all(nodes.map(async (node) => ({ node, ...(await node.call(createSandbox, { templateID: "base", timeout: 3_000 })) })));
type Held = (typeof held)[number];
const [first, second] = held as [Held, Held];

const headersOf = ({ sandboxID, envdAccessToken = "" }: SandboxAnswer, port = ENVD_PORT) => ({
  "x-svc-sandbox-id": sandboxID,
  "x-svc-target-port": String(port),
  "x-access-token": envdAccessToken,
});
const ask = (url: string, sandbox: SandboxAnswer) => fetch(`${url}/health`, { headers: headersOf(sandbox), signal: AbortSignal.timeout(askBoundMs) });
for (const each of held) await until("each sandbox", async () => ((await ask(gateway.url, each)).status === 204 ? true : undefined));

/** The peer maps the sandbox's header to its node. */
const map = held.map(({ sandboxID }, index) => `${sandboxID} n${index};`).join(" ");
const upstreams = nodes.map(({ port }, index) => `upstream n${index} { server 127.0.0.1:${port}; keepalive 64; keepalive_requests 1000000000; }`).join(" ");
const peerPort = 9_105;
const settings = `user root; daemon off; worker_processes 1; pid ${home}/nginx.pid; error_log ${home}/nginx.log; events { worker_connections 4096; }
http { access_log off; keepalive_requests 1000000000; client_max_body_size 0; proxy_request_buffering off; proxy_buffering off;
  map_hash_bucket_size 128; map $http_x_svc_sandbox_id $node { default n0; ${map} } ${upstreams}
  server { listen 127.0.0.1:${peerPort}; location / { proxy_pass http://$node; proxy_http_version 1.1; proxy_set_header Connection "";
    proxy_set_header Host $http_host; proxy_set_header X-Forwarded-For $remote_addr; } } }`;
writeFileSync(join(home, "nginx.conf"), settings);
const nginx = spawn("nginx", ["-c", join(home, "nginx.conf"), "-p", home], { stdio: ["ignore", "ignore", "inherit"] });
stack.defer(async () => {
  nginx.kill("SIGTERM");
  await once(nginx, "exit");
});
await until("nginx", () => (existsSync(join(home, "nginx.pid")) ? true : undefined));
await sleep(300);
const master = readFileSync(join(home, "nginx.pid"), "utf8").trim();
const peerPid = Number(readFileSync(`/proc/${master}/task/${master}/children`, "utf8").trim().split(" ")[0]);

type Load = { readonly name: string; readonly pid: number; readonly port: number };
const loads: Load[] = [
  { name: "nginx with a map", pid: peerPid, port: peerPort },
  { name: "svc gateway", pid: gateway.pid, port: gateway.port },
];
async function wrk(port: number, count: number): Promise<{ requests: number; p50Ms: number }> {
  const args = Object.entries(headersOf(first)).flatMap(([name, value]) => ["-H", `${name}: ${value}`]);
  const { stdout } = await run("wrk", ["-t1", `-c${count}`, `-d${seconds}s`, "--latency", ...args, `http://127.0.0.1:${port}/health`]);
  if (/Non-2xx/.test(stdout)) throw new Error(`not all requests succeeded: ${stdout}`);
  const [, value, unit] = /50%\s+([\d.]+)(us|ms|s)/.exec(stdout) ?? [];
  return { requests: Number(/(\d+) requests in/.exec(stdout)?.[1]), p50Ms: Number(value) * (unit === "us" ? 0.001 : unit === "s" ? 1_000 : 1) };
}
progress("small requests");
const cpu = new Map(loads.map(({ name }) => [name, [] as number[]]));
for (const { port } of loads) await wrk(port, connections);
for (let round = 0; round < rounds; round++) {
  for (const { name, pid, port } of loads) {
    const before = cpuSeconds(pid);
    const { requests } = await wrk(port, connections);
    cpu.get(name)?.push(((cpuSeconds(pid) - before) * 1e6) / requests);
  }
}
const alone = new Map<string, number[]>();
for (let round = 0; round < rounds; round++)
  for (const { name, port } of [{ name: "node itself", port: first.node.port }, ...loads])
    alone.set(name, [...(alone.get(name) ?? []), (await wrk(port, 1)).p50Ms]);

const [theirs, ours] = loads.map(({ name }) => cpu.get(name) ?? []) as [number[], number[]];
const rows: Row[] = [...cpu].map(([name, samples]) => ({ what: `CPU per small request: ${name}`, value: median(samples), unit: "us", samples: rounds }));
const ratio = median(ours.map((value, round) => value / (theirs[round] as number)));
rows.push({ what: "CPU per small request: gateway to nginx", value: Number(ratio.toFixed(2)), unit: "times", goal: { atMost: 1.3 }, samples: rounds });
for (const [name, samples] of alone) rows.push({ what: `p50 of a request on its own: ${name}`, value: median(samples), unit: "ms", samples: rounds });
const added = median(alone.get("svc gateway") ?? []) - median(alone.get("node itself") ?? []);
rows.push({ what: "p50 that the gateway adds", value: Number(added.toFixed(3)), unit: "ms", goal: { atMost: 0.3 } });

progress("1 GiB down and up");
const connected = await Sandbox.connect(first.sandboxID, { apiUrl: first.node.url, sandboxUrl: first.node.url, apiKey: first.node.apiKey });
await connected.commands.run(`truncate -s ${bulkBytes} /home/user/gigabyte`);
await connected.files.write("/home/user/sink.py", sinkScript());
await connected.commands.run("python3 /home/user/sink.py", { background: true });
const heads = (port: number, more: string) =>
  `Host: a\r\n${Object.entries(headersOf(first, port))
    .map(([name, value]) => `${name}: ${value}\r\n`)
    .join("")}${more}\r\n`;
await until("the sink", async () => {
  const response = await fetch(`${gateway.url}/`, { method: "POST", headers: headersOf(first, sinkPort), body: "x" });
  return response.status === 200 ? true : undefined;
});
const raw: Record<string, unknown> = { cpu: Object.fromEntries(cpu), alone: Object.fromEntries(alone) };
for (const [direction, goal] of [
  ["down", 600],
  ["up", 400],
] as const) {
  for (const { name, port } of loads) {
    const rates: number[] = [];
    for (let round = 0; round < 3; round++) {
      const took =
        direction === "down"
          ? await download(port, `GET /files?path=/home/user/gigabyte&username=user HTTP/1.1\r\n${heads(ENVD_PORT, "")}`, bulkBytes)
          : await upload(port, `POST / HTTP/1.1\r\n${heads(sinkPort, `Content-Length: ${bulkBytes}\r\n`)}`, bulkBytes);
      rates.push(bulkBytes / 1e6 / took);
    }
    raw[`1 GiB ${direction}, ${name}, MB/s`] = rates;
    const asked = name === "svc gateway" ? { goal: { atLeast: goal } } : {};
    rows.push({ what: `1 GiB ${direction}: ${name}`, value: median(rates), unit: "MB/s", ...asked, samples: rates.length });
  }
}
rows.push({ what: "peak resident size of the gateway", value: Math.round(peakBytes(gateway.pid) / 2 ** 20), unit: "MiB" });

progress("creates");
const tookMs = async (work: () => Promise<unknown>) => {
  const begin = performance.now();
  await work();
  return performance.now() - begin;
};
const created = { direct: [] as number[], gateway: [] as number[] };
for (let round = 0; round < creates; round++) {
  for (const [way, entry] of [
    ["direct", first.node],
    ["gateway", gateway],
  ] as const) {
    let sandboxID = "";
    created[way].push(await tookMs(async () => ({ sandboxID } = await entry.call(createSandbox, { templateID: "base" }))));
    await entry.call(deleteSandbox, { sandboxID });
  }
}
raw["create, ms"] = created;
rows.push({ what: "create at the node itself", value: median(created.direct), unit: "ms", samples: creates });
rows.push({
  what: "create through the gateway",
  value: median(created.gateway),
  unit: "ms",
  samples: creates,
  note: "the node's own time + 2 ms were asked for",
});

/** Measures the time from the signal to the first 502, and the latency of requests to the other node's sandbox meanwhile. */
async function lose(node: TestNode, signal: "SIGKILL" | "SIGSTOP"): Promise<{ noticedMs: number; others: number[] }> {
  const others: number[] = [];
  let isOver = false;
  const watching = (async () => {
    while (!isOver) others.push(await tookMs(() => ask(gateway.url, second)));
  })();
  const begin = performance.now();
  if (signal === "SIGSTOP") await freeze(node.pid);
  else process.kill(node.pid, signal);
  let noticedMs = 0;
  for (let status = 0; status !== 502; noticedMs = performance.now() - begin) status = (await ask(gateway.url, first)).status;
  await sleep(300);
  isOver = true;
  await watching;
  return { noticedMs, others };
}
for (const [signal, goal] of [
  ["SIGKILL", 50],
  ["SIGSTOP", 1_000],
] as const) {
  progress(signal);
  const noticed: number[] = [];
  const others: number[] = [];
  for (let death = 0; death < deaths; death++) {
    const { pid } = first.node;
    const found = await lose(first.node, signal);
    noticed.push(found.noticedMs);
    others.push(...found.others);
    if (signal === "SIGSTOP") thaw(pid);
    else await first.node.restart("SIGKILL");
    await allUp(gateway);
  }
  raw[`${signal}, ms`] = noticed;
  rows.push({
    what: `${signal} of a node: its requests are answered 502 after, p50`,
    value: median(noticed),
    unit: "ms",
    goal: { atMost: goal },
    samples: deaths,
  });
  rows.push({ what: `${signal}: others' requests meanwhile, p99`, value: percentile(others, 0.99), unit: "ms", samples: others.length });
}
const quiet: number[] = [];
for (let count = 0; count < 2_000; count++) quiet.push(await tookMs(() => ask(gateway.url, second)));
rows.push({ what: "requests on a quiet deployment, p99", value: percentile(quiet, 0.99), unit: "ms", samples: quiet.length });
report("cluster", rows, raw);

/** An application that reads the announced body and answers. */
function sinkScript(): string {
  return `import re, socket
server = socket.create_server(("0.0.0.0", ${sinkPort}), backlog=64)
view = memoryview(bytearray(1 << 20))
while True:
    client, _ = server.accept()
    try:
        while True:
            head = b""
            while b"\\r\\n\\r\\n" not in head:
                got = client.recv(65536)
                if not got: raise EOFError
                head += got
            left = int(re.search(rb"content-length: (\\d+)", head, re.I)[1]) - (len(head) - head.index(b"\\r\\n\\r\\n") - 4)
            while left > 0:
                got = client.recv_into(view)
                if got == 0: raise EOFError
                left -= got
            client.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
    except (EOFError, OSError): pass
    client.close()
`;
}
