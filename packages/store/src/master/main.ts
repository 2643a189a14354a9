// The store's master: knows which client holds which object, and until when.
import { join } from "node:path";
import { Failure } from "@svc/contract/failures.ts";
import { complained } from "@svc/kit/config.ts";
import { openLoneConsole } from "@svc/kit/console/lone.ts";
import { masterSeries } from "@svc/kit/console/ring.ts";
import { lockHome } from "@svc/kit/home-lock.ts";
import { ready, untilStopped } from "@svc/kit/lifecycle.ts";
import { dialledAt, urlOf } from "@svc/kit/listen.ts";
import { openLog } from "@svc/kit/log.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import { openPeerCertificates } from "@svc/kit/peers/peer-certificates.ts";
import { Denials } from "../access/denials.ts";
import { openKeys, tokenFrom } from "../access/keys.ts";
import { openHa } from "../ha/open.ts";
import { codes } from "../rpc/codes.ts";
import { names } from "../rpc/native-names.ts";
import { announceMaster, withdraw } from "../rpc/own-servers.ts";
import { displayVersion } from "../rpc/revision.ts";
import { toWire } from "../rpc/text.ts";
import { HANDSHAKE_VERSION } from "../rpc/version.ts";
import { DrainJobs } from "./drain.ts";
import { eventHandler, Watch } from "./events.ts";
import { masterHandlers } from "./handlers.ts";
import { answerHttp, type HttpParts, knownPath, summaryOf } from "./http.ts";
import { openHttp } from "./http-connections.ts";
import { listenPeers, listenRpc, openSecurePort, plainHost } from "./listen.ts";
import { watchLogSpace } from "./log-space.ts";
import { openMasterMetrics } from "./master-metrics.ts";
import { Members } from "./members.ts";
import { noteKinds, type OnEvent, openNative } from "./native.ts";
import { openProbes } from "./probes.ts";
import { openPublisher } from "./publisher.ts";
import { openRpc } from "./rpc.ts";
import { load, type MasterSettings } from "./settings.ts";
import { folderOf, openFolder, storageConfigOf } from "./shared-folder.ts";
import { type Task, Tasks } from "./tasks.ts";

const TASK_SWEEP_MS = 5_000;
const DRAIN_MS = 500;
export async function main(argv: readonly string[]): Promise<number> {
  try {
    return await run(argv);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    return complained("store master", error);
  }
}

async function run(argv: readonly string[]): Promise<number> {
  const loaded = load(argv);
  if (loaded === "help") return 0;
  const settings = loaded.settings.store;
  const log = openLog("store-master", settings.log_level);
  const keys = openKeys({
    setting: "store.access_file",
    file: settings.access_file,
    variable: "SVC_STORE_TOKEN",
    env: process.env,
    noTenants: settings.enable_multi_tenants ? undefined : "store.enable_multi_tenants is off",
    warn: (message) => log.warn(message),
  });
  const denials = new Denials(log);
  const metrics = openMetrics();
  const watch = new Watch();
  // The core's events arrive in later ticks of the event loop, when all parts exist.
  let onEvent: OnEvent = () => undefined;
  let several: ReturnType<typeof openHa> | undefined;
  await lockHome(loaded.home, "store master");
  const needOffload = (["offload_on_evict", "offload_force_evict", "promotion_on_hit"] as const).filter((name) => settings[name] && !settings.enable_offload);
  if (needOffload.length > 0) log.warn({ settings: needOffload }, "these settings have no effect without enable_offload");
  const native = openNative(nativeOptions(settings, loaded.home), (...event) => onEvent(...event));
  const tasks = new Tasks({
    limits: taskLimits(settings),
    onQueued: (clientID, count) => void native.setTasks(clientID, count),
    now: Date.now,
    keep: (tasks) =>
      native.keepNotes(
        noteKinds.task,
        tasks.flatMap((task) => [task.id, JSON.stringify(task)]),
      ),
    forget: (ids) => native.dropNotes(ids),
  });
  const drains = new DrainJobs(native, tasks, Date.now);
  const probes = openProbes(native, settings.probe_timeout_ms, (endpoint, reached) =>
    log.warn({ endpoint }, reached ? "a holder's endpoint answers again" : "a holder's endpoint does not answer: clients are no longer sent there"),
  );
  const members = new Members(native);
  const handlers = masterHandlers({
    log,
    native,
    tasks,
    members,
    authority: settings.stable_id,
    storage: storageConfigOf(settings),
    multiTenant: settings.enable_multi_tenants,
    brands: settings.brand,
  });
  const folder = openFolder({ native, settings, log, isServing: () => watch.state.serving });
  const rpc = openRpc({
    native,
    brands: settings.brand,
    handlers,
    log,
    access: keys && { keys, trusted: settings.access_trusted_cidrs, denials },
    refusal: () =>
      !watch.state.serving ? codes.UNAVAILABLE_IN_CURRENT_MODE : settings.enable_ha && !native.leased() ? codes.UNAVAILABLE_IN_CURRENT_STATUS : codes.OK,
  });
  const publisher = settings.enable_kv_events
    ? await openPublisher({ native, settings, log, whenDurable: () => watch.whenDurable(native), isServing: () => watch.state.serving })
    : undefined;
  const parts: HttpParts = {
    native,
    drains,
    members,
    compat: settings.compat,
    version: { version: HANDSHAKE_VERSION, display_version: displayVersion() },
    multiTenant: settings.enable_multi_tenants,
    publishes: settings.enable_kv_events,
    access: keys && { keys, denials },
    serving: () => watch.state.serving,
    state: () => watch.stateWith(native),
    get ha() {
      return several?.ha;
    },
    metrics: openMasterMetrics(metrics, native, join(loaded.home, "store"), () => several?.ha),
    summary: () => summaryOf(native, watch.state, several?.ha),
    whenDurable: () => watch.whenDurable(native),
  };
  const seconds = metrics.seconds("svc_store_http_seconds", "Time from an HTTP request to its answer", ["path", "code"]);
  // A guarded master is shown to those who have its own token, which the console also reads it with.
  const token = keys === undefined ? undefined : tokenFrom("SVC_STORE_TOKEN", "", process.env);
  const webConsole = openLoneConsole({
    kind: "master",
    title: "svc store master",
    version: displayVersion(),
    settings: loaded.settings.console,
    own: "store_url",
    key: token === undefined ? undefined : { secret: token, source: "SVC_STORE_TOKEN" },
    series: masterSeries,
    collect: parts.metrics,
    home: loaded.home,
    log,
    metrics,
  });
  const certificates = openPeerCertificates(loaded.settings.peers, log, metrics);
  const httpHost = plainHost(settings.listen.host, settings, certificates);
  const http = openHttp({
    native,
    host: httpHost,
    settings,
    isGuarded: keys !== undefined,
    handsOver: webConsole.handsOver,
    answer: (request) => answerHttp(request, parts),
    observe: (request, code, took) => seconds.observe({ path: request === undefined ? "none" : knownPath(request.target), code: String(code) }, took),
  });
  const rpcBound = listenRpc(native, settings, certificates);
  const rpcPort = rpcBound.port;
  const stream = settings.enable_ha ? listenPeers(native, settings, certificates) : undefined;
  const secure = await openSecurePort({ certificates, settings, rpc: rpcBound, stream, http, log });
  if (stream !== undefined) {
    several = openHa({
      native,
      settings,
      home: loaded.home,
      keys,
      token: tokenFrom("SVC_STORE_TOKEN", "", process.env),
      certificates,
      log,
      ports: { rpc: rpcPort, http: http.port, stream: stream.port, tls: secure?.port },
    });
  }
  onEvent = eventHandler({ rpc, probes, watch, publisher, http, denials, members, ha: several?.ha, log });
  // A standby serves only once it leads, which may never happen.
  const served = watch.recovered.then((recovery) => {
    tasks.restore(native.notes(noteKinds.task).map((text) => JSON.parse(text) as Task));
    drains.restore();
    return recovery;
  });
  if (several === undefined) native.start();
  const recovery = await (several === undefined ? served : Promise.race([served, several.ha.start()]));
  const logSpace = watchLogSpace({ native, home: loaded.home, ha: () => several?.ha, log });
  const sweep = setInterval(() => tasks.sweep(), TASK_SWEEP_MS);
  const drain = setInterval(
    () => void (watch.state.serving ? drains.tick() : Promise.resolve()).catch((error: Error) => log.error({ err: error }, "a drain job failed")),
    DRAIN_MS,
  );
  const url = urlOf(httpHost, http.port);
  log.info(
    {
      url,
      rpc: `${rpcBound.host}:${rpcPort}`,
      ...(secure === undefined ? {} : { tls: `${settings.rpc_address}:${secure.port}` }),
      recovery,
      role: several === undefined || several.ha.isLeader ? "leader" : "standby",
      guarded: keys !== undefined,
      durability: settings.durability,
      home: loaded.home,
      config: loaded.configPath,
    },
    "ready",
  );
  process.stdout.write(`svc store master RPC at ${rpcBound.host}:${rpcPort}\n`);
  if (secure !== undefined) process.stdout.write(`svc store master TLS at ${settings.rpc_address}:${secure.port}\n`);
  announceMaster(loaded.home, { rpc: dialledAt(rpcBound.host, rpcPort).slice("http://".length), url, pid: process.pid });
  webConsole.start(dialledAt(httpHost, http.port));
  ready("store master", url);

  return untilStopped(log, [
    { name: "console", close: () => webConsole.close() },
    {
      name: "http",
      close: () => {
        clearInterval(sweep);
        clearInterval(drain);
        logSpace.close();
        secure?.stop();
        return http.close();
      },
    },
    { name: "etcd", close: async () => several?.close() },
    { name: "certificates", close: async () => certificates?.close() },
    { name: "TLS", close: async () => secure?.close() },
    { name: "probes", close: async () => probes.close() },
    { name: "shared folder", close: async () => folder?.close() },
    { name: "KV events", close: async () => publisher?.close() },
    { name: "rpc and log", close: async () => native.stop() },
    { name: "address", close: async () => withdraw(loaded.home, "master") },
  ]);
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
  strategy: names.strategies.indexOf(settings.allocation_strategy),
  multiTenant: settings.enable_multi_tenants,
  offload: settings.enable_offload,
  offloadOnEvict: settings.offload_on_evict,
  offloadForceEvict: settings.offload_force_evict,
  offloadCapRatio: settings.offload_cap_ratio,
  offloadQueue: settings.offload_queue_limit,
  nof: settings.enable_nof,
  nofEvictionRatio: settings.nof_eviction_ratio,
  nofHighWatermark: settings.nof_eviction_high_watermark_ratio,
  folderPath: folderOf(settings),
  folderEvicts: settings.enable_disk_eviction,
  promoteOnHit: settings.promotion_on_hit,
  promoteThreshold: settings.promotion_threshold,
  promoteAtOnce: settings.promotion_max_per_heartbeat,
  promoteQueue: settings.promotion_queue_limit,
  putWaitMs: settings.put_wait_ms,
  aheadRatio: settings.max_leased_ahead_ratio,
  maxFrameBytes: settings.max_frame_bytes,
  maxConnections: settings.max_rpc_connections,
  maxHttpConnections: settings.max_http_connections,
  maxBufferedBytes: settings.max_buffered_bytes,
  halfFrameMs: settings.half_frame_timeout_seconds * 1000,
  snapshotBytes: settings.snapshot_log_bytes,
  kvEvents: settings.enable_kv_events,
  emitObjectKey: settings.kv_events_emit_object_key,
  emitLegacy: settings.kv_events_emit_legacy_compat,
  eventBackend: toWire(settings.kv_events_backend_id),
  eventQueue: settings.kv_events_queue_capacity,
  folder: toWire(join(home, "store")),
  disk: settings.durability === "disk",
  logFileBytes: settings.log_file_bytes,
});

if (process.argv[1] === import.meta.filename) process.exitCode = await main(process.argv.slice(2));
