// The cost that 10,000 named keys add to a small request through the proxy: two proxies, without keys and with them, in interleaved pairs.
// SVC_BENCH_PAIRS sets their number.
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ENVD_PORT } from "@svc/contract/envd-http.ts";
import { orderOf, Pairs, type Side } from "./pairs.ts";
import { drive, type Load, needPrograms, nginxAnswer, nginxBase, nginxCommon, starter, startNginx } from "./proxy-load.ts";
import { progress } from "./report.ts";

const KEYS = 10_000;
const SECONDS = 2;
const pairs = Number(process.env["SVC_BENCH_PAIRS"] || 20);
const host = "127.77.1.2";
const token = "a1b2c3d4".repeat(8);

await needPrograms();
await using stack = new AsyncDisposableStack();
const start = starter(stack);
const home = mkdtempSync(join(tmpdir(), "svc-bench-keys-"));
stack.defer(() => rmSync(home, { recursive: true, force: true }));
const http = `http { ${nginxCommon} server { listen ${host}:${ENVD_PORT}; location / { ${nginxAnswer} } }`;
await startNginx(start, home, "responder", `${nginxBase(home, "responder")} ${http} }`);

type Proxy = { readonly pid: number; readonly port: number; readonly apiKey: string };
async function open(side: Side): Promise<Proxy> {
  const script = join(import.meta.dirname, "proxy-process.ts");
  const child = start(process.execPath, [script, host, join(home, `${side}.sock`), token, String(side === "new" ? KEYS : 0)]);
  const [port, apiKey = ""] = String((await once(child.stdout as NonNullable<typeof child.stdout>, "data"))[0])
    .trim()
    .split(" ");
  return { pid: child.pid as number, port: Number(port), apiKey };
}
const proxies: Record<Side, Proxy> = { old: await open("old"), new: await open("new") };

const heads = { "x-svc-sandbox-id": "ibench00000000000001", "x-svc-target-port": String(ENVD_PORT), "X-Access-Token": token };
/** The side without keys sends the deployment's own key where the other one sends a named key; both proxies remove it from the request. */
const loads = (side: Side): Load[] => [
  { name: "a request without a key", ...proxies[side], headers: heads },
  { name: "a request with a key", ...proxies[side], headers: { ...heads, "X-API-Key": proxies[side].apiKey } },
];

const found = new Pairs();
for (const side of ["old", "new"] as const) for (const load of loads(side)) await drive(load, SECONDS);
for (let pair = 0; pair < pairs; pair++) {
  progress(`pair ${pair + 1} of ${pairs}`);
  for (let kind = 0; kind < 2; kind++) {
    for (const side of orderOf(pair)) {
      const load = loads(side)[kind] as Load;
      found.add(`${load.name}: CPU`, "us", "lower", side, (await drive(load, SECONDS)).microseconds);
    }
  }
}
found.report("proxy-keys", `a proxy without named keys; the working tree's has ${KEYS}`);
