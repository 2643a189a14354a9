// The metadata server: where transfer engines find each other, over HTTP.
import type { AddressInfo, Socket } from "node:net";
import { Failure, fail } from "@svc/contract/failures.ts";
import { loadConfig } from "@svc/kit/config.ts";
import { ready, untilStopped } from "@svc/kit/lifecycle.ts";
import { openLog } from "@svc/kit/log.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import { openJournal } from "./journal.ts";
import { Records } from "./records.ts";
import { createMetadataServer } from "./server.ts";
import { metadataSettings } from "./settings.ts";

const SWEEP_MS = 1000;
const about = "keeps the records of transfer engines: GET, PUT and DELETE of PATH?key=KEY. No authentication: keep it inside.";

export async function main(argv: readonly string[]): Promise<number> {
  try {
    return await run(argv);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    process.stderr.write(`svc metadata: ${error.message}\n`);
    return 1;
  }
}

async function run(argv: readonly string[]): Promise<number> {
  const flagNames = { listen: "metadata.listen", path: "metadata.path", durable: "metadata.durable", "log-level": "metadata.log_level" };
  const loaded = loadConfig({ server: "metadata", schema: metadataSettings, flagNames, argv, about });
  if (loaded === "help") return 0;
  const settings = loaded.settings.metadata;
  const log = openLog("metadata", settings.log_level);
  const metrics = openMetrics();
  const journal = settings.durable ? openJournal(loaded.home) : undefined;
  const records = new Records({ maxKeys: settings.max_keys, maxTotalBytes: settings.max_total_bytes }, journal, Date.now);
  const restored = journal?.restore(records) ?? 0;

  const seconds = metrics.seconds("svc_metadata_request_seconds", "Time from a request to its answer", ["method", "code"]);
  metrics.gauge("svc_metadata_keys", "Keys stored", [], (gauge) => gauge.set(records.size));
  metrics.gauge("svc_metadata_stored_bytes", "Bytes of keys and values stored", [], (gauge) => gauge.set(records.bytes));
  const expired = metrics.counter("svc_metadata_expired_total", "Keys whose lease ran out");
  const methods = new Set(["GET", "HEAD", "PUT", "DELETE", "none"]);
  const server = createMetadataServer({
    path: settings.path,
    records,
    maxLeaseMs: settings.max_lease_ms,
    maxValueBytes: settings.max_value_bytes,
    maxConnections: settings.max_connections,
    observe: (method, code, took) => seconds.observe({ method: methods.has(method) ? method : "other", code: String(code) }, took),
    metrics: async () => ({ status: 200, type: metrics.contentType, body: Buffer.from(await metrics.text()) }),
  });
  const connections = new Set<Socket>();
  server.on("connection", (socket) => {
    connections.add(socket);
    socket.once("close", () => connections.delete(socket));
  });
  const sweep = setInterval(() => expired.inc(records.sweep()), SWEEP_MS);
  const { host, port } = settings.listen;
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error) => {
      clearInterval(sweep);
      journal?.close();
      reject(error);
    });
    server.listen(port, host, resolve);
  }).catch((error: Error) => fail("SETTING_INVALID", `setting metadata.listen: ${host}:${port}: ${error.message}`, { cause: error }));
  const url = `http://${host.includes(":") ? `[${host}]` : host}:${(server.address() as AddressInfo).port}`;
  log.info({ url, path: settings.path, durable: settings.durable, restored, home: loaded.home }, "ready");
  ready("metadata", url);
  return untilStopped(log, [
    {
      name: "http",
      close: () => {
        clearInterval(sweep);
        const closed = new Promise<void>((resolve) => server.close(() => resolve()));
        for (const socket of connections) socket.destroySoon();
        return closed;
      },
    },
    { name: "records", close: async () => journal?.close() },
  ]);
}
