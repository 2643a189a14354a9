// HTTPS out of a sandbox with a header that the node sets, against the same requests without rules: latency, throughput, connections.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { startNames } from "@svc/harness/network-names.ts";
import { startNode } from "@svc/harness/node.ts";
import { publicAddresses, startOutside } from "@svc/harness/outside.ts";
import { makeAuthority } from "@svc/harness/test-authority.ts";
import { Sandbox, Secret } from "e2b";
import { median, progress, type Row, report } from "./report.ts";

const ROUNDS = 7;
const REQUESTS = 300;
const CONNECTIONS = 20;
const BYTES = 100_000_000;
const BOUND_MS = 600_000;
const [one, eight] = publicAddresses;
const runtime = (process.env["SVC_BENCH_RUNTIME"] ?? "gvisor") as "gvisor" | "runc" | "bubblewrap";

const client = `
import http.client, json, ssl, sys, time
host, cafile = sys.argv[1], sys.argv[2]
context = ssl.create_default_context(cafile=cafile)
def opened():
    connection = http.client.HTTPSConnection(host, context=context)
    connection.connect()
    return connection
def get(connection, path):
    connection.request("GET", path)
    return connection.getresponse()
connection = opened()
for _ in range(20): get(connection, "/").read()
times = []
for _ in range(${REQUESTS}):
    begin = time.perf_counter()
    get(connection, "/").read()
    times.append((time.perf_counter() - begin) * 1000)
begin = time.perf_counter()
response = get(connection, "/bytes?${BYTES}")
buffer = bytearray(1 << 20)
while response.readinto(buffer): pass
rate = ${BYTES} / (time.perf_counter() - begin) / 1e6
connects = []
for _ in range(${CONNECTIONS}):
    begin = time.perf_counter()
    get(opened(), "/").read()
    connects.append((time.perf_counter() - begin) * 1000)
print(json.dumps({"times": times, "rate": rate, "connects": connects}))
`;
type Measured = { times: number[]; rate: number; connects: number[] };

const folder = makeHome();
const authority = makeAuthority("bench authority");
writeFileSync(join(folder, "ca.pem"), authority.certificate);
await using outside = await startOutside({ https: ["api.example.com", "other.example.com"].map((host) => authority.host(host)) });
await using names = await startNames({
  "api.example.com": [{ name: "api.example.com", a: one }],
  "other.example.com": [{ name: "other.example.com", a: eight }],
});
await using node = await startNode({ runtime, flags: [`--network.dns=${names.upstream}`, `--egress.ca_file=${join(folder, "ca.pem")}`] });
await outside.seen();
const where = { apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey };
await Secret.create("bench", "value", where);
const rules = { "api.example.com": [{ transform: { headers: { "x-secret": Secret.fill("bench") } } }] };
const [without, ruled] = await Promise.all([
  Sandbox.create("base", { ...where, timeoutMs: 3_000_000 }),
  Sandbox.create("base", { ...where, timeoutMs: 3_000_000, network: { rules } }),
]);
for (const sandbox of [without, ruled]) {
  await sandbox.files.write("/tmp/client.py", client);
  await sandbox.files.write("/tmp/ca.pem", authority.certificate);
}
async function measured(sandbox: Sandbox, host: string, cafile: string): Promise<Measured> {
  const { stdout } = await sandbox.commands.run(`python3 /tmp/client.py ${host} ${cafile}`, { timeoutMs: BOUND_MS });
  return JSON.parse(stdout) as Measured;
}

const raw: { direct: Measured[]; ruled: Measured[]; beside: Measured[] } = { direct: [], ruled: [], beside: [] };
for (let round = 0; round <= ROUNDS; round++) {
  progress(`round ${round} of ${ROUNDS}`);
  const direct = await measured(without, "api.example.com", "/tmp/ca.pem");
  const through = await measured(ruled, "api.example.com", "/etc/ssl/certs/ca-certificates.crt");
  const beside = await measured(ruled, "other.example.com", "/tmp/ca.pem");
  if (round === 0) continue; // it only warms up
  raw.direct.push(direct);
  raw.ruled.push(through);
  raw.beside.push(beside);
}
const p50 = (each: readonly Measured[]) => median(each.map(({ times }) => median(times)));
const difference = (of: readonly Measured[]) => median(of.map(({ times }, at) => median(times) - median(raw.direct[at]?.times ?? [])));
const ratio = (of: readonly Measured[]) => median(of.map(({ rate }, at) => rate / (raw.direct[at]?.rate ?? Number.NaN)));
const connect = (each: readonly Measured[]) => median(each.map(({ connects }) => median(connects))).toFixed(1);
const rows: Row[] = [
  {
    what: `${runtime}: a keep-alive request with a header set, more than without rules: p50`,
    value: difference(raw.ruled),
    unit: "ms",
    goal: { atMost: 0.5 },
    samples: ROUNDS * REQUESTS,
    note: `${p50(raw.ruled).toFixed(2)} against ${p50(raw.direct).toFixed(2)} ms`,
  },
  {
    what: `${runtime}: throughput of a download with a header set, to that without rules`,
    value: ratio(raw.ruled),
    unit: "x",
    goal: { atLeast: 0.6 },
    note: `${median(raw.ruled.map(({ rate }) => rate)).toFixed(0)} MB/s`,
  },
  {
    what: `${runtime}: a host without rules, in a sandbox that has some, more than in one without: p50`,
    value: difference(raw.beside),
    unit: "ms",
    goal: { atMost: 0.05 },
    note: `throughput ${ratio(raw.beside).toFixed(2)} x`,
  },
  {
    what: `${runtime}: a new connection and a request, with a header set: p50`,
    value: Number(connect(raw.ruled)),
    unit: "ms",
    note: `without rules ${connect(raw.direct)} ms`,
  },
];
await Promise.all([without.kill(), ruled.kill()]);
removeHome(folder);
report("egress", rows, raw, process.env["SVC_BENCH_RUNTIME"] !== undefined);
