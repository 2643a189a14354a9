// The indexer: consumes the KV events of every engine and store, and answers queries with the matched prefixes per instance.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { Failure, fail } from "@svc/contract/failures.ts";
import type { Registration } from "@svc/contract/indexer.ts";
import { complained } from "@svc/kit/config.ts";
import { openLoneConsole } from "@svc/kit/console/lone.ts";
import { indexerSeries } from "@svc/kit/console/ring.ts";
import { lockHome } from "@svc/kit/home-lock.ts";
import { ready, untilStopped } from "@svc/kit/lifecycle.ts";
import { dialledAt, urlOf } from "@svc/kit/listen.ts";
import { openLog } from "@svc/kit/log.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import { announceServer, withdrawServer } from "@svc/kit/own-server.ts";
import { openPeerCertificates } from "@svc/kit/peers/peer-certificates.ts";
import { PeerClient } from "@svc/kit/peers/peer-client.ts";
import { needsPeerCertificates, warnIfPlain } from "@svc/kit/peers/settings.ts";
import { openHttp } from "./http/http.ts";
import { Intake } from "./index/intake.ts";
import { LoopShare } from "./index/loop-share.ts";
import { openIndex } from "./index/native.ts";
import { PendingBudget } from "./index/order.ts";
import { WriteBarrier } from "./index/write-barrier.ts";
import { openIndexerMetrics } from "./observe/indexer-metrics.ts";
import { VERSION } from "./observe/page.ts";
import { Views } from "./observe/views.ts";
import { Scores } from "./query/score.ts";
import { Quarantine } from "./registrations/quarantine.ts";
import { keyOf, readStatic } from "./registrations/register-input.ts";
import { indexerRoutes } from "./routes.ts";
import { type IndexerSettings, load } from "./settings.ts";
import { Discovered } from "./state/discovered.ts";
import { Registry } from "./state/registry.ts";
import { Shared } from "./state/shared.ts";
import { Snapshots } from "./state/snapshot.ts";
import { restoreState } from "./state/start.ts";
import { limitsOf } from "./stream/zmq.ts";

const MIB = 1024 * 1024;
/** Pending batches may take one part in this many of the memory budget. */
const WAITING_SHARE = 8;
/** The time of each tick that requests may take; /health is answered in between. */
const REQUEST_SLICE_MS = 5;
/**
 * Messages lie outside of V8's small heap; counted together, they made V8 mark the whole heap eight times for two million blocks, a tenth
 * of the cost of taking them in. With this value it is twice.
 */
const HEAP_GROWING_PERCENT = 400;

export async function main(argv: readonly string[]): Promise<number> {
  try {
    return await run(argv);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    return complained("indexer", error);
  }
}

async function run(argv: readonly string[]): Promise<number> {
  setFlagsFromString(`--heap-growing-percent=${HEAP_GROWING_PERCENT}`);
  const loaded = load(argv);
  if (loaded === "help") return 0;
  const settings = loaded.settings.indexer;
  const folder = join(loaded.home, "indexer");
  await lockHome(loaded.home, "indexer");
  const log = openLog("indexer", settings.log_level);
  const metrics = openMetrics();
  const budgetBytes = settings.memory_budget_mb * MIB;
  const waitingBytes = budgetBytes / WAITING_SHARE;
  needsPeerCertificates("indexer.bootstrap_from", [settings.bootstrap_from], loaded.settings.peers);
  const certificates = openPeerCertificates(loaded.settings.peers, log, metrics);
  const index = openIndex(budgetBytes - waitingBytes, BigInt(settings.hash_seed));
  const writeBarrier = new WriteBarrier();
  const share = new LoopShare(REQUEST_SLICE_MS);
  const intake = new Intake(writeBarrier, new PendingBudget(waitingBytes), () => share.takeSpentMs());
  const quarantine = new Quarantine(log, folder);
  const limits = limitsOf();
  const snapshots = new Snapshots(index, writeBarrier, log, quarantine, folder);
  const registry = new Registry({ index, intake, settings, log, folder, quarantine, limits });
  const configured = configuredRegistrations(settings);
  await restoreState({ settings, configured, index, registry, snapshots, quarantine, log, folder, siblings: new PeerClient(certificates, "indexer") });
  registry.watchSilence(settings.silence_seconds * 1000);
  const discovered = new Discovered({ registry, sources: settings.discover, forgetMs: settings.forget_seconds * 1000, folder, log });
  const fixed = new Set(configured.map(keyOf));
  const isOwn = (registration: Registration) => !fixed.has(keyOf(registration)) && !discovered.owns(registration);
  const shared =
    settings.etcd.length === 0 ? undefined : new Shared({ registry, endpoints: settings.etcd, certificates, name: settings.shared_name, folder, isOwn, log });

  const problems = () => [
    ...discovered.problems(),
    ...(shared === undefined || shared.trouble === "" ? [] : [`registrations are not shared: ${shared.trouble}`]),
  ];
  const views = new Views({ index, writeBarrier, registry, settings, quarantine, snapshots, problems });
  const indexerMetrics = openIndexerMetrics(metrics, index, registry, snapshots, intake.pendingBudget);
  const routes = indexerRoutes({
    index,
    registry,
    shared,
    views,
    scores: new Scores(index, registry),
    metrics,
    share,
    apiKey: settings.api_key,
    collect: indexerMetrics.collect,
    snapshot: () => snapshots.download(registry),
    startedAtMs: Date.now(),
  });
  const webConsole = openLoneConsole({
    kind: "indexer",
    title: "svc indexer",
    version: VERSION,
    settings: loaded.settings.console,
    own: "indexer_url",
    key: settings.api_key === "" ? undefined : { secret: settings.api_key, source: "indexer.api_key" },
    series: indexerSeries,
    collect: indexerMetrics.collect,
    home: loaded.home,
    log,
    metrics,
  });
  const { host, port } = settings.listen;
  const server = await openHttp({
    listen: settings.listen,
    certificates,
    plainClients: settings.plain_clients,
    routes,
    urgent: ["/health"],
    share,
    maxBodyBytes: settings.max_body_bytes,
    maxConnections: limits.connections,
    log,
    handsOver: webConsole.handsOver,
    onAnswer: indexerMetrics.onAnswer,
  }).catch((error: Error) => fail("SETTING_INVALID", `indexer.listen: ${host}:${port} cannot listen there: ${error.message}`));
  discovered.begin();
  shared?.begin();
  snapshots.every(settings.snapshot_interval_seconds, registry);
  const url = urlOf(host, server.port, certificates === undefined ? "http" : "https");
  const local = dialledAt(server.local.host, server.local.port);
  if (certificates === undefined || settings.plain_clients) warnIfPlain(log, { host, port: server.port }, "traffic to the indexer");
  log.info({ url, home: loaded.home, registrations: registry.subscriptions.size, config: loaded.configPath }, "ready");
  announceServer(loaded.home, "indexer", { url: local, pid: process.pid });
  webConsole.start(local);
  ready("indexer", url);

  return untilStopped(log, [
    { name: "address", close: async () => withdrawServer(loaded.home, "indexer") },
    { name: "console", close: () => webConsole.close() },
    { name: "http", close: () => server.close() },
    { name: "discovery", close: () => Promise.all([discovered.close(), shared?.close()]).then(() => undefined) },
    { name: "certificates", close: async () => certificates?.close() },
    { name: "subscriptions", close: () => registry.close() },
    { name: "timer", close: async () => snapshots.stop() },
    { name: "snapshot", close: () => snapshots.write(registry) },
  ]);
}

function configuredRegistrations(settings: IndexerSettings): Registration[] {
  const file = settings.registrations_file || process.env["CONDUCTOR_CONFIG_PATH"] || "";
  const found: Registration[] = [];
  if (file !== "") {
    let text: string;
    try {
      text = readFileSync(file, "utf8");
    } catch (error) {
      return fail("SETTING_INVALID", `indexer.registrations_file: ${file} cannot be read: ${(error as Error).message}`, { cause: error });
    }
    found.push(...readStatic(text, file, settings.brand));
  }
  if (settings.registrations !== "") found.push(...readStatic(settings.registrations, "indexer.registrations", settings.brand));
  return found;
}

if (process.argv[1] === import.meta.filename) process.exitCode = await main(process.argv.slice(2));
