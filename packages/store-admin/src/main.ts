// The store's admin server: moves and copies objects between segments on request, and retries until each task ends.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { Failure, fail } from "@svc/contract/failures.ts";
import { complained } from "@svc/kit/config.ts";
import { lockHome } from "@svc/kit/home-lock.ts";
import { ready, untilStopped } from "@svc/kit/lifecycle.ts";
import { openLog } from "@svc/kit/log.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import { openPeerCertificates } from "@svc/kit/peers/peer-certificates.ts";
import { Denials } from "@svc/store/access/denials.ts";
import { openKeys, tokenFrom } from "@svc/store/access/keys.ts";
import { announceAdmin, ownMaster, withdraw } from "@svc/store/rpc/own-servers.ts";
import { exposeColdTier } from "./cold/cold-metrics.ts";
import { ColdTier } from "./cold/cold-tier.ts";
import { movesOf } from "./cold/moves.ts";
import { Offloads } from "./cold/offloads.ts";
import { Owners } from "./cold/owners.ts";
import { coldRoutes } from "./cold/routes.ts";
import { adminPage } from "./http/page.ts";
import { openAdminServer } from "./http/server.ts";
import { Masters } from "./masters/masters.ts";
import { Numbers } from "./metadata/numbers.ts";
import { openRecords } from "./metadata/open.ts";
import { Executions } from "./migrations/executions.ts";
import { type MigrationPolicy, Migrations } from "./migrations/migrations.ts";
import { migrationRoutes } from "./migrations/routes.ts";
import { type AdminSettings, load } from "./settings.ts";

const DEFAULT_MASTER = "127.0.0.1:50051";

export async function main(argv: readonly string[]): Promise<number> {
  try {
    return await run(argv);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    return complained("store admin", error);
  }
}

async function run(argv: readonly string[]): Promise<number> {
  const loaded = load(argv);
  if (loaded === "help") return 0;
  const settings = loaded.settings.store_admin;
  const log = openLog("store-admin", settings.log_level);
  const keys = openKeys({
    setting: "store_admin.access_file",
    file: settings.access_file,
    variable: "SVC_STORE_ADMIN_TOKEN",
    env: process.env,
    noTenants: "tokens of the admin server are for all tenants",
    warn: (message) => log.warn(message),
  });
  await lockHome(loaded.home, "store admin");
  const folder = join(loaded.home, "store-admin");
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const records = openRecords({ setting: "store_admin.metadata", text: settings.metadata, folder, namespace: settings.namespace });
  const numbers = new Numbers(records, "route-migration");
  const lost = await numbers.last();
  if (lost > 0)
    log.warn({ upTo: `route-migration-${lost}` }, "the queue of an earlier start is lost: its tasks are no longer known; the master shows what was done");
  const addresses = mastersOf(settings, loaded.home);
  const metrics = openMetrics();
  const certificates = openPeerCertificates(loaded.settings.peers, log, metrics);
  const masters = new Masters({
    addresses,
    brand: settings.brand,
    certificates,
    token: tokenFrom("store_admin.token_file", settings.token_file, process.env),
  });
  const ended = metrics.counter("svc_store_admin_migrations_ended_total", "Route migrations that ended", ["mode", "state"]);
  const took = metrics.seconds("svc_store_admin_migration_seconds", "Time from a migration's request to its end", ["mode"]);
  const migrations = new Migrations({
    executions: new Executions(masters),
    numbers,
    policy: policyOf(settings),
    log,
    onEnd({ request: { mode }, progress, createdMs, updatedMs }) {
      ended.inc({ mode, state: progress.phase.state });
      took.observe({ mode }, (updatedMs - createdMs) / 1000);
    },
  });
  metrics.gauge("svc_store_admin_migrations", "Route migrations by state", ["state"], (gauge) => {
    gauge.reset();
    for (const [state, count] of migrations.counts()) gauge.set({ state }, count);
  });
  const owners = new Owners(masters);
  const tier = new ColdTier({ records, masters, owners, lowWatermark: settings.cold_low_watermark, ...movesOf(migrations) });
  const offloads = new Offloads({ tier, owners, numbers: new Numbers(records, "cold-tier-offload"), log });
  exposeColdTier(metrics, tier, offloads);
  const seconds = metrics.seconds("svc_store_admin_http_seconds", "Time from an HTTP request to its answer", ["path", "code"]);
  const routes = [...migrationRoutes(migrations), ...coldRoutes({ tier, offloads, masters })];
  const server = await openAdminServer({
    listen: settings.listen,
    maxBodyBytes: settings.max_body_bytes,
    parts: {
      routes,
      page: adminPage(routes),
      access: keys && { keys, denials: new Denials(log) },
      metrics: () => metrics.text(),
      onFailure: (failure, request) => log.warn({ err: failure, method: request.method, target: request.target }, "a request failed"),
    },
    observe: (path, code, tookSeconds) => seconds.observe({ path, code }, tookSeconds),
  });
  migrations.start();
  log.info({ url: server.url, masters: addresses(), guarded: keys !== undefined, home: loaded.home, config: loaded.configPath }, "ready");
  announceAdmin(loaded.home, { url: server.url, pid: process.pid });
  ready("store admin", server.url);
  return untilStopped(log, [
    { name: "http", close: () => server.close() },
    { name: "offloads", close: () => offloads.close() },
    { name: "migrations", close: () => migrations.close() },
    { name: "masters", close: async () => masters.close() },
    { name: "certificates", close: async () => certificates?.close() },
    { name: "metadata", close: () => records.close() },
    { name: "address", close: async () => withdraw(loaded.home, "admin") },
  ]);
}

/** Returns the configured masters, otherwise this machine's own, otherwise the default address of a master. */
function mastersOf({ master }: AdminSettings, home: string): () => readonly string[] {
  if (new Set(master).size !== master.length) fail("SETTING_INVALID", `setting store_admin.master: a master is named twice: ${master.join(",")}`);
  return () => (master.length > 0 ? master : [ownMaster(home)?.rpc ?? DEFAULT_MASTER]);
}

const policyOf = (settings: AdminSettings): MigrationPolicy => ({
  maxRetries: settings.migration_max_retries,
  baseDelayMs: settings.migration_retry_base_delay_ms,
  maxDelayMs: settings.migration_retry_max_delay_ms,
  pollMs: settings.migration_poll_interval_ms,
  maxTasks: settings.max_migrations,
  namespace: settings.namespace,
});

if (process.argv[1] === import.meta.filename) process.exitCode = await main(process.argv.slice(2));
