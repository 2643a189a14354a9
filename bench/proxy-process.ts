// A proxy in a separate process for the bench: one secure and one private sandbox at loopback addresses, and as many named keys as it is given.
import { randomUUID } from "node:crypto";
import type { KeyRecord } from "@svc/contract/keys.ts";
import { type MadeKey, makeKey } from "@svc/kit/keys/key-secret.ts";
import { Keys } from "@svc/kit/keys/keys.ts";
import { openLog } from "@svc/kit/log.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import { openProxy } from "@svc/sandbox/proxy/server.ts";
import type { ProxyEntry } from "@svc/sandbox/records/directory.ts";

const [host = "127.0.0.1", control = "", token = "", count = "0"] = process.argv.slice(2);
const handle = { runtime: "runc", runtimeID: "bench", directory: "", pid: 1, pidStartTicks: 1, endpoint: { kind: "tcp", host }, network: undefined } as const;
const entry: ProxyEntry = {
  sandboxID: "ibench00000000000001",
  handle,
  secure: true,
  trafficPrivate: true,
  envdAccessToken: token,
  trafficAccessToken: token,
  maskRequestHost: undefined,
  httpsPorts: [],
};
const entries = new Map([[entry.sandboxID, entry]]);
const deploymentKey = `sdk_${"0".repeat(64)}`;
const made = Array.from({ length: Number(count) }, () => makeKey());
const record = ({ secret }: MadeKey, at: number): KeyRecord => ({
  version: 1,
  id: randomUUID(),
  name: `key ${at}`,
  tenant: `tenant-${at % 100}`,
  role: "member",
  secrets: [secret],
  createdAtMs: Date.now(),
});
const unused = () => Promise.reject(new Error("the bench changes no key"));
const keys = new Keys({
  store: { open: ({ all }) => all(made.map(record)), put: unused, remove: unused, putUse: unused, putTenant: unused, close: async () => {} },
  log: openLog("bench", "info"),
});
const proxy = await openProxy({
  listen: { host: "127.0.0.1", port: 0 },
  control,
  directory: {
    find: (id) => entries.get(id),
    entries: () => entries.values(),
    sleeping: () => undefined,
    sleepers: () => [],
    isPaused: () => false,
    isMoving: () => false,
    moveOver: async () => {},
    movedTo: () => undefined,
    wake: async () => {},
  },
  apiKey: deploymentKey,
  keys,
  log: openLog("bench", "info"),
  metrics: openMetrics(),
});
process.stdout.write(`${proxy.address.port} ${made.at(-1)?.apiKey ?? deploymentKey}\n`);
process.on("SIGTERM", () => void proxy.close().then(() => process.exit(0)));
process.stdin.resume().on("end", () => process.exit(0));
