// The indexer: KV events of every engine and store in, matched prefixes per instance out.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { Failure, fail } from "@svc/contract/failures.ts";
import type { Registration } from "@svc/contract/indexer.ts";
import { loadConfig } from "@svc/kit/config.ts";
import { ready, untilStopped } from "@svc/kit/lifecycle.ts";
import { urlOf } from "@svc/kit/listen.ts";
import { openLog } from "@svc/kit/log.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import { openHttp } from "./http.ts";
import { openIndexerMetrics } from "./indexer-metrics.ts";
import { type NativeIndex, openIndex } from "./native.ts";
import { keyOf, readStatic } from "./register-input.ts";
import { Registry, type SavedSubscription } from "./registry.ts";
import { indexerRoutes } from "./routes.ts";
import { type IndexerSettings, indexerSettings } from "./settings.ts";
import { fetchSibling, Snapshots } from "./snapshot.ts";
import { Stillness } from "./stillness.ts";
import { Views } from "./views.ts";

const MIB = 1024 * 1024;
/**
 * Messages lie outside of V8's heap, which is small; counted together they had it marked whole eight times for two million blocks,
 * a tenth of what taking them in costs. Now twice.
 */
const HEAP_GROWING_PERCENT = 400;
const about = "reads the KV events of inference engines and stores, and answers which instance holds a prompt's prefix.";

export async function main(argv: readonly string[]): Promise<number> {
  try {
    return await run(argv);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    process.stderr.write(`svc indexer: ${error.message}\n`);
    return 1;
  }
}

async function run(argv: readonly string[]): Promise<number> {
  setFlagsFromString(`--heap-growing-percent=${HEAP_GROWING_PERCENT}`);
  const flagNames = { listen: "indexer.listen", brand: "indexer.brand", "log-level": "indexer.log_level", "memory-budget-mb": "indexer.memory_budget_mb" };
  const loaded = loadConfig({ server: "indexer", schema: indexerSettings, flagNames, argv, about });
  if (loaded === "help") return 0;
  const settings = loaded.settings.indexer;
  const folder = join(loaded.home, "indexer");
  const log = openLog("indexer", settings.log_level);
  const metrics = openMetrics();
  const index = openIndex(settings.memory_budget_mb * MIB, BigInt(settings.hash_seed));
  const stillness = new Stillness();
  const snapshots = new Snapshots(index, stillness, log, folder);
  const registry = new Registry(index, stillness, settings, log, folder);
  await begin(settings, index, registry, snapshots);

  const views = new Views(index, stillness, registry, settings);
  const figures = openIndexerMetrics(metrics, index, registry, snapshots);
  const routes = indexerRoutes({
    index,
    registry,
    views,
    metrics,
    collect: figures.collect,
    snapshot: async () => (await snapshots.take(registry)).bytes,
    startedAtMs: Date.now(),
  });
  const { host, port } = settings.listen;
  const server = await openHttp({ listen: settings.listen, routes, maxBodyBytes: settings.max_body_bytes, log, onAnswer: figures.onAnswer }).catch(
    (error: Error) => fail("SETTING_INVALID", `indexer.listen: ${host}:${port} cannot be listened on: ${error.message}`),
  );
  snapshots.every(settings.snapshot_interval_seconds, registry);
  const url = urlOf(host, server.port);
  log.info({ url, home: loaded.home, registrations: registry.subscriptions.size, config: loaded.configPath }, "ready");
  ready("indexer", url);

  return untilStopped(log, [
    { name: "http", close: () => server.close() },
    { name: "subscriptions", close: () => registry.close() },
    { name: "timer", close: async () => snapshots.stop() },
    { name: "snapshot", close: () => snapshots.write(registry) },
  ]);
}

/** Snapshot first, then the registrations: each finds its former blocks and asks only for what came since. */
async function begin(settings: IndexerSettings, index: NativeIndex, registry: Registry, snapshots: Snapshots): Promise<void> {
  const wanted = new Map<string, Registration>();
  for (const registration of [...registry.saved(), ...staticRegistrations(settings)]) wanted.set(keyOf(registration), registration);
  let saved = snapshots.load();
  if (saved.length === 0 && settings.bootstrap_from !== "") {
    saved = snapshots.read(await fetchSibling(settings.bootstrap_from));
    for (const { registration } of saved) wanted.set(keyOf(registration), registration);
  }
  const former = new Map<string, SavedSubscription>();
  for (const one of saved) {
    // Blocks of a registration that is gone, or means something else now, are nobody's.
    const registration = wanted.get(keyOf(one.registration));
    if (registration !== undefined && JSON.stringify(registration) === JSON.stringify(one.registration)) former.set(keyOf(registration), one);
    else index.unsubscribe(one.id);
  }
  for (const [key, registration] of wanted) await registry.register(registration, former.get(key));
}

function staticRegistrations(settings: IndexerSettings): Registration[] {
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
