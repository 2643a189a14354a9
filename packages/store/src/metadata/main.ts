// The metadata server: where transfer engines find each other, over HTTP.
import { performance } from "node:perf_hooks";
import { Failure, fail } from "@svc/contract/failures.ts";
import { complained } from "@svc/kit/config.ts";
import { lockHome } from "@svc/kit/home-lock.ts";
import { HttpServer } from "@svc/kit/http/server.ts";
import { ready, untilStopped } from "@svc/kit/lifecycle.ts";
import { dialledAt, urlOf } from "@svc/kit/listen.ts";
import { openLog } from "@svc/kit/log.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import { announceServer, withdrawServer } from "@svc/kit/own-server.ts";
import { type Answering, answer, refusal, requestHeaders } from "./answer.ts";
import { GoneClients } from "./gone-clients.ts";
import { openJournal } from "./journal.ts";
import { metadataPage } from "./page.ts";
import { Records } from "./records.ts";
import { load } from "./settings.ts";

const SWEEP_MS = 1000;

export async function main(argv: readonly string[]): Promise<number> {
  try {
    return await run(argv);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    return complained("metadata", error);
  }
}

async function run(argv: readonly string[]): Promise<number> {
  const loaded = load(argv);
  if (loaded === "help") return 0;
  const settings = loaded.settings.metadata;
  const log = openLog("metadata", settings.log_level);
  const metrics = openMetrics();
  if (settings.durability !== "memory") await lockHome(loaded.home, "metadata");
  const journal = settings.durability === "memory" ? undefined : await openJournal(loaded.home, settings.durability);
  const records = new Records({ maxKeys: settings.max_keys, maxTotalBytes: settings.max_total_bytes }, journal, () => performance.now());
  const { restored, damages } = (await journal?.restore(records)) ?? { restored: 0, damages: [] };
  for (const damage of damages) log.error({ ...damage }, "part of the records could not be read; all others are intact");

  const seconds = metrics.seconds("svc_metadata_request_seconds", "Time from a request to its answer", ["method", "code"]);
  metrics.gauge("svc_metadata_keys", "Keys stored", [], (gauge) => gauge.set(records.size));
  metrics.gauge("svc_metadata_stored_bytes", "Bytes of keys and values stored", [], (gauge) => gauge.set(records.bytes));
  metrics.gauge("svc_metadata_damages", "Parts of the records that could not be read at the start", [], (gauge) => gauge.set(damages.length));
  const expired = metrics.counter("svc_metadata_expired_total", "Keys whose lease ran out");
  const methods = new Set(["GET", "HEAD", "PUT", "DELETE", "none"]);
  const { host, port } = settings.listen;
  const answering: Answering = {
    path: settings.path,
    page: metadataPage(settings.path),
    records,
    maxLeaseMs: settings.max_lease_ms,
    metrics: async () => ({ type: metrics.contentType, body: await metrics.text() }),
  };
  const server = new HttpServer({
    maxBodyBytes: settings.max_value_bytes,
    bodySetting: "metadata.max_value_bytes",
    maxConnections: settings.max_connections,
    maxBufferedBytes: settings.max_buffered_bytes,
    headers: requestHeaders,
    answer: (request) => answer(request, answering),
    refuse: refusal,
    observe(request, code, took) {
      const method = request?.method ?? "none";
      seconds.observe({ method: methods.has(method) ? method : "other", code: String(code) }, took);
    },
  });
  await server.listen(settings.listen).catch(async (error: Error) => {
    await journal?.close();
    fail("SETTING_INVALID", `setting metadata.listen: ${host}:${port}: ${error.message}`, { cause: error });
  });
  metrics.gauge("svc_metadata_connections", "Connections open", [], (gauge) => gauge.set(server.connections));
  metrics.gauge("svc_metadata_buffered_bytes", "Bytes of large requests and answers under way", [], (gauge) => gauge.set(server.memory.grantedBytes));
  const sweep = setInterval(function step() {
    expired.inc(records.sweep());
    if (records.isSweeping) setImmediate(step);
  }, SWEEP_MS);
  const ended = metrics.counter("svc_metadata_ended_total", "Keys that ended because no process listens at their client's address any more");
  const gone =
    settings.gone_client_seconds === 0
      ? undefined
      : new GoneClients({ records, afterMs: settings.gone_client_seconds * 1000, log, now: () => performance.now(), onEnded: (count) => ended.inc(count) });
  const url = urlOf(host, server.port);
  log.info({ url, path: settings.path, durability: settings.durability, restored, home: loaded.home }, "ready");
  announceServer(loaded.home, "metadata", { url: `${dialledAt(host, server.port)}${settings.path}`, pid: process.pid });
  ready("metadata", url);
  return untilStopped(log, [
    { name: "address", close: async () => withdrawServer(loaded.home, "metadata") },
    {
      name: "http",
      close: async () => {
        clearInterval(sweep);
        await gone?.close();
        await server.close();
      },
    },
    {
      name: "records",
      close: async () => {
        await records.settled();
        await journal?.close();
      },
    },
  ]);
}
