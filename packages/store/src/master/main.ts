// The store's master: who holds which object, and until when.
import type { AddressInfo, Socket } from "node:net";
import { join } from "node:path";
import { Failure, fail } from "@svc/contract/failures.ts";
import { loadConfig } from "@svc/kit/config.ts";
import { ready, untilStopped } from "@svc/kit/lifecycle.ts";
import { urlOf } from "@svc/kit/listen.ts";
import { openLog } from "@svc/kit/log.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import { createHttpServer } from "../http/server.ts";
import { eventHandler, Watch } from "./events.ts";
import { HANDSHAKE_VERSION, masterHandlers } from "./handlers.ts";
import { answerHttp, type HttpParts, knownPath, refuseHttp, summaryOf } from "./http.ts";
import { openMasterMetrics } from "./master-metrics.ts";
import { type NativeMaster, type OnEvent, openNative, strategies } from "./native.ts";
import { openProbes } from "./probes.ts";
import { openRpc } from "./rpc.ts";
import { type MasterSettings, masterFlags, masterSettings } from "./settings.ts";
import { Tasks } from "./tasks.ts";

const TASK_SWEEP_MS = 5_000;
const MAX_HTTP_BODY_BYTES = 1 << 20;
const about = "knows who holds which object of the cache store: RPC for clients, HTTP on --listen for people and tools. No authentication: keep it inside.";

export async function main(argv: readonly string[]): Promise<number> {
  try {
    return await run(argv);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    process.stderr.write(`svc store master: ${error.message}\n`);
    return 1;
  }
}

async function run(argv: readonly string[]): Promise<number> {
  const loaded = loadConfig({ server: "store master", schema: masterSettings, flagNames: masterFlags, argv, about });
  if (loaded === "help") return 0;
  const settings = loaded.settings.store;
  const log = openLog("store-master", settings.log_level);
  const metrics = openMetrics();
  const watch = new Watch();
  // The core tells of events from its first moment on; they come in a later turn of this loop, when all parts stand.
  let onEvent: OnEvent = () => undefined;
  const native = openNative(nativeOptions(settings, loaded.home), (...event) => onEvent(...event));
  const tasks = new Tasks(taskLimits(settings), (clientID, count) => void native.setTasks(clientID, count), Date.now);
  const probes = openProbes(native, settings.probe_timeout_ms, (endpoint, reached) =>
    log.warn({ endpoint }, reached ? "a holder's endpoint answers again" : "a holder's endpoint does not answer: nobody is sent there"),
  );
  const handlers = masterHandlers(native, tasks);
  const rpc = openRpc({ native, brands: settings.brand, handlers, log, serving: () => watch.state.serving });
  onEvent = eventHandler({ rpc, probes, watch, log });

  const parts: HttpParts = {
    native,
    compat: settings.compat,
    version: { version: HANDSHAKE_VERSION, display_version: `svc ${HANDSHAKE_VERSION}` },
    multiTenant: settings.enable_multi_tenants,
    serving: () => watch.state.serving,
    state: () => watch.stateWith(native),
    metrics: openMasterMetrics(metrics, native),
    summary: () => summaryOf(native, watch.state),
    whenDurable: () => watch.whenDurable(native),
  };
  const seconds = metrics.seconds("svc_store_http_seconds", "Time from an HTTP request to its answer", ["path", "code"]);
  const http = createHttpServer({
    maxBodyBytes: MAX_HTTP_BODY_BYTES,
    bodySetting: "none: a fixed bound",
    maxConnections: settings.max_http_connections,
    answer: (request, done) => answerHttp(request, parts, done),
    refuse: refuseHttp,
    observe: (request, code, took) => seconds.observe({ path: request === undefined ? "none" : knownPath(request.target), code: String(code) }, took),
  });
  const connections = new Set<Socket>();
  http.on("connection", (socket) => {
    connections.add(socket);
    socket.once("close", () => connections.delete(socket));
  });
  const { host, port } = settings.listen;
  await new Promise<void>((resolve, reject) => {
    http.once("error", reject);
    http.listen(port, host, resolve);
  }).catch((error: Error) => fail("SETTING_INVALID", `setting store.listen: ${host}:${port}: ${error.message}`, { cause: error }));
  const rpcPort = listenRpc(native, settings);
  native.start();
  const recovery = await watch.recovered;
  const sweep = setInterval(() => tasks.sweep(), TASK_SWEEP_MS);
  const url = urlOf(host, (http.address() as AddressInfo).port);
  log.info({ url, rpc: `${settings.rpc_address}:${rpcPort}`, recovery, durability: settings.durability, home: loaded.home }, "ready");
  process.stdout.write(`svc store master RPC at ${settings.rpc_address}:${rpcPort}\n`);
  ready("store master", url);

  return untilStopped(log, [
    {
      name: "http",
      close: () => {
        clearInterval(sweep);
        const closed = new Promise<void>((resolve) => http.close(() => resolve()));
        for (const socket of connections) socket.destroySoon();
        return closed;
      },
    },
    { name: "probes", close: async () => probes.close() },
    { name: "rpc and log", close: async () => native.stop() },
  ]);
}

function listenRpc(native: NativeMaster, { rpc_address, rpc_port }: MasterSettings): number {
  try {
    return native.listen(rpc_address, rpc_port);
  } catch (error) {
    return fail("SETTING_INVALID", `settings store.rpc_address and store.rpc_port: ${rpc_address}:${rpc_port}: ${(error as Error).message}`, { cause: error });
  }
}

const taskLimits = (settings: MasterSettings) => ({
  maxTasks: settings.max_total_tasks,
  pendingMs: settings.pending_task_timeout_seconds * 1000,
  processingMs: settings.processing_task_timeout_seconds * 1000,
  maxRetries: settings.max_retry_attempts,
});

const nativeOptions = (settings: MasterSettings, home: string) => ({
  leaseMs: settings.default_kv_lease_ttl_ms,
  softPinMs: settings.default_kv_soft_pin_ttl_ms,
  maxSoftPinMs: settings.max_kv_soft_pin_ttl_ms,
  evictSoftPinned: settings.allow_evict_soft_pinned_objects,
  evictionRatio: settings.eviction_ratio,
  highWatermark: settings.eviction_high_watermark_ratio,
  clientTtlMs: settings.client_ttl_seconds * 1000,
  suspectMs: settings.suspect_after_ms,
  discardMs: settings.put_start_discard_timeout_seconds * 1000,
  releaseMs: settings.put_start_release_timeout_seconds * 1000,
  taskTimeoutMs: settings.processing_task_timeout_seconds * 1000,
  strategy: strategies.indexOf(settings.allocation_strategy),
  multiTenant: settings.enable_multi_tenants,
  maxFrameBytes: settings.max_frame_bytes,
  maxConnections: settings.max_rpc_connections,
  maxBufferedBytes: settings.max_buffered_bytes,
  halfFrameMs: settings.half_frame_timeout_seconds * 1000,
  snapshotBytes: settings.snapshot_log_bytes,
  folder: join(home, "store"),
  disk: settings.durability === "disk",
  logFileBytes: settings.log_file_bytes,
});

if (process.argv[1] === import.meta.filename) process.exitCode = await main(process.argv.slice(2));
