// A proxy in a separate process for the bench: one secure and one private sandbox at loopback addresses.
import { openLog } from "@svc/kit/log.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import { openProxy } from "@svc/sandbox/proxy/server.ts";
import type { ProxyEntry } from "@svc/sandbox/records/directory.ts";

const [host = "127.0.0.1", control = "", token = ""] = process.argv.slice(2);
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
  apiKey: `sdk_${"0".repeat(64)}`,
  log: openLog("bench", "info"),
  metrics: openMetrics(),
});
process.stdout.write(`${proxy.address.port}\n`);
process.on("SIGTERM", () => void proxy.close().then(() => process.exit(0)));
process.stdin.resume().on("end", () => process.exit(0));
