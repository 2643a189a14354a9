// The proxy's cost: CPU per small request compared with nginx, interleaved in one run, and the rate of large bodies. Needs nginx and wrk,
// both Debian packages. `node bench/proxy.bench.ts [--profile DIR]`
import { once } from "node:events";
import { ftruncateSync, mkdtempSync, openSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { ENVD_PORT } from "@svc/contract/envd-http.ts";
import { cpuSeconds, peakBytes } from "./process-usage.ts";
import { download, upload } from "./proxy-bulk.ts";
import { drive, type Load, needPrograms, nginxAnswer, nginxBase, nginxCommon, starter, startNginx } from "./proxy-load.ts";
import { median, type Row, report } from "./report.ts";

const rounds = 5;
const seconds = 3;
const bulkBytes = 1 << 30;
const host = "127.77.1.2";
const token = "a1b2c3d4".repeat(8);
const envd = ENVD_PORT;
const application = 9001;
const sink = 9003;
const nginxPort = 9004;

const { values: flags } = parseArgs({ options: { profile: { type: "string" } } });
await needPrograms();
await using stack = new AsyncDisposableStack();

const child = starter(stack);
const home = mkdtempSync(join(tmpdir(), "svc-bench-proxy-"));
stack.defer(() => rmSync(home, { recursive: true, force: true }));
ftruncateSync(openSync(join(home, "gigabyte"), "w"), bulkBytes);
const common = nginxCommon;
const shared = (name: string) => nginxBase(home, name);
const answerLine = nginxAnswer;
const responder = `${shared("responder")} http { ${common} server { listen ${host}:${envd}; listen ${host}:${application}; location / { ${answerLine} } location /gigabyte { root ${home}; } } }`;
// One proxy_pass serves both ports, so that each of our two routes has a peer with the same hop and the same heads.
const peer = `${shared("peer")} http { ${common} upstream u { server ${host}:${envd}; keepalive 64; keepalive_requests 1000000000; }
  server { listen 127.0.0.1:${nginxPort}; location / { proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $http_host; proxy_set_header X-Forwarded-For $remote_addr; } } }`;

const nginx = (name: string, text: string) => startNginx(child, home, name, text);
await nginx("responder", responder);
const peerPid = await nginx("peer", peer);
const script = join(import.meta.dirname, "proxy-process.ts");
const profiling = flags.profile === undefined ? [] : ["--cpu-prof", `--cpu-prof-dir=${flags.profile}`];
const ours = child(process.execPath, [...profiling, script, host, join(home, "control.sock"), token]);
const port = Number.parseInt(String((await once(ours.stdout as NonNullable<typeof ours.stdout>, "data"))[0]), 10);
const oursPid = ours.pid as number;
child(process.execPath, [join(import.meta.dirname, "proxy-bulk.ts"), "sink", host, String(sink)]);
for (let tries = 0; tries < 100; tries++) {
  const socket = connect(sink, host);
  const open = await Promise.race([once(socket, "connect").then(() => true), once(socket, "close").then(() => false)]).catch(() => false);
  socket.destroy();
  if (open) break;
  await sleep(50);
}

const routing = (target: number) => ({ "x-svc-sandbox-id": "ibench00000000000001", "x-svc-target-port": String(target) });
const envdHeaders = { ...routing(envd), "X-Access-Token": token };
const applicationHeaders = { ...routing(application), "svc-traffic-access-token": token };
const loads: Load[] = [
  { name: "nginx, envd's heads", pid: peerPid, port: nginxPort, headers: envdHeaders },
  { name: "svc, envd of a secure sandbox", pid: oursPid, port, headers: envdHeaders },
  { name: "nginx, the application's heads", pid: peerPid, port: nginxPort, headers: applicationHeaders },
  { name: "svc, private application", pid: oursPid, port, headers: applicationHeaders },
];
const results = new Map(loads.map(({ name }) => [name, { microseconds: [] as number[], perSecond: [] as number[] }]));
for (const one of loads) await drive(one, seconds);
for (let round = 0; round < rounds; round++) {
  for (const one of loads) {
    const { microseconds, perSecond } = await drive(one, seconds);
    results.get(one.name)?.microseconds.push(microseconds);
    results.get(one.name)?.perSecond.push(perSecond);
  }
}
const raw: Record<string, unknown> = Object.fromEntries(results);
const rows: Row[] = [...results].map(([name, { microseconds, perSecond }]) => ({
  what: `CPU per small request: ${name}`,
  value: median(microseconds),
  unit: "us",
  samples: rounds,
  note: `${Math.round(median(perSecond))} requests/s`,
}));
// Each of our runs is compared with nginx's run just before it, so that other load affects both.
const ratio = (ours: number, nginx: number) => {
  const [mine, theirs] = [ours, nginx].map((index) => results.get((loads[index] as Load).name)?.microseconds ?? []) as [number[], number[]];
  return Number(median(mine.map((value, round) => value / (theirs[round] as number))).toFixed(2));
};
rows.push({ what: "CPU per small request, envd: svc to nginx", value: ratio(1, 0), unit: "times", goal: { atMost: 1.2 }, samples: rounds });
rows.push({ what: "CPU per small request, application: svc to nginx", value: ratio(3, 2), unit: "times", goal: { atMost: 1.2 }, samples: rounds });

const heads = (target: number, more: string) =>
  `Host: a\r\n${Object.entries({ ...routing(target), "svc-traffic-access-token": token })
    .map(([name, value]) => `${name}: ${value}\r\n`)
    .join("")}${more}\r\n`;
for (const direction of ["down", "up"] as const) {
  const rates: number[] = [];
  const before = cpuSeconds(oursPid);
  for (let round = 0; round < 3; round++) {
    const took =
      direction === "down"
        ? await download(port, `GET /gigabyte HTTP/1.1\r\n${heads(application, "")}`, bulkBytes)
        : await upload(port, `POST / HTTP/1.1\r\n${heads(sink, `Content-Length: ${bulkBytes}\r\n`)}`, bulkBytes);
    rates.push(bulkBytes / 1e6 / took);
  }
  const cpu = ((cpuSeconds(oursPid) - before) * 1e6) / ((rates.length * bulkBytes) / 1e6);
  raw[`1 GiB ${direction}, MB/s`] = rates;
  rows.push({
    what: `1 GiB ${direction}`,
    value: median(rates),
    unit: "MB/s",
    goal: { atLeast: 400 },
    samples: rates.length,
    note: `${Math.round(cpu)} us of CPU per MB`,
  });
}
rows.push({ what: "peak resident size of the proxy's process", value: Math.round(peakBytes(oursPid) / 2 ** 20), unit: "MiB" });
report("proxy", rows, raw);
