// Builds a node's parts, bottom up, and says in which order they close.
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { asFailure, fail } from "@svc/contract/failures.ts";
import type { Part } from "@svc/kit/lifecycle.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Metrics } from "@svc/kit/metrics.ts";
import { openSpawner, type Spawner } from "@svc/kit/spawn.ts";
import type { Networks } from "../network/networks.ts";
import { openNetworks } from "../network/open.ts";
import { type OpenRuntime, openRuntime } from "../runtime/open.ts";
import { type RuntimeName, runtimeNames } from "../runtime/runtime.ts";
import { openCatalogue } from "../template/catalogue.ts";
import { bootID, systemClock } from "./clock.ts";
import type { Node } from "./node.ts";
import { openNodeMetrics } from "./node-metrics.ts";
import { openPool } from "./pool.ts";
import { openGate } from "./queue.ts";
import { openRecords, type Records } from "./records.ts";
import { openRegistry } from "./registry.ts";
import { loadInitKey, loadSeed, sweepHalfWritten } from "./secrets.ts";
import { type NodeSettings, poolSizes } from "./settings.ts";

export type Opened = {
  readonly node: Node;
  /** In closing order; `everything` also removes what would outlive the node. */
  parts(everything: boolean): Part[];
};

export async function openNode(home: string, settings: NodeSettings, log: Log, metrics: Metrics): Promise<Opened> {
  const records = openRecords(join(home, "sandboxes.db"));
  // Only now, with the home held, is what lies half-written certainly nobody's.
  sweepHalfWritten(home);
  const known = records.all();
  const seed = loadSeed(home, settings.sandbox.access_token_hash_seed, tokensInUse(records));
  const envdBinary = binaryOf("SVC_ENVD", "envd");
  const spawner = openSpawner();
  const needed = new Set(known.flatMap(({ status }) => ("handle" in status && status.handle !== undefined ? [status.handle.runtime] : [])));
  const { runtime, runtimes } = await openRuntimes(home, settings, spawner, log, needed);
  const networks = await networksFor(home, settings, spawner, log);
  const clock = systemClock;
  const registry = openRegistry(records, seed.secret, clock);
  const { start_concurrency, start_queue, start_timeout_seconds } = settings.sandbox;
  const gate = openGate(start_concurrency, start_queue, start_timeout_seconds * 1000);
  const nodeMetrics = openNodeMetrics(metrics, {
    states: () => tally([...registry.all()].map((record) => record.status.state)),
    pool: () => node.pool.ready(),
    waiting: () => gate.waiting,
  });
  const node: Node = {
    home,
    settings,
    clock,
    bootID: bootID(),
    log,
    metrics: nodeMetrics,
    records,
    registry,
    catalogue: openCatalogue(process.env["SVC_TEMPLATES_DIR"] ?? join(home, "templates")),
    runtime,
    runtimes,
    runtimeNamed: (name) => runtimes.get(name) ?? fail("INTERNAL", `the driver ${name} is not open`),
    networks,
    gate,
    get pool() {
      return pool;
    },
    seed: seed.secret,
    initKey: loadInitKey(home),
    envdBinary,
    envdVersion: execFileSync(envdBinary, ["-version"], { encoding: "utf8" }).trim(),
    stages: (runtimeName) => async (stage, work) => {
      log.debug({ stage }, "stage begins");
      const end = nodeMetrics.stageSeconds.startTimer({ runtime: runtimeName, stage });
      try {
        return await work();
      } finally {
        end();
      }
    },
    owned: () => [...registry.entries()].length,
    creating: 0,
    stopping: false,
    domain: "localhost",
    proxy: undefined,
  };
  const pool = openPool(node, poolSizes(settings), settings.pool.size, settings.pool.refill_concurrency);
  return {
    node,
    parts: (everything) => [
      { name: "pool", close: () => pool.close() },
      { name: "networks", close: async () => networks?.close({ everything }) },
      ...[...runtimes.values()].map((each) => ({ name: `runtime ${each.name}`, close: () => each.close({ everything }) })),
      { name: "records", close: async () => records.close() },
      { name: "spawn helper", close: () => spawner[Symbol.asyncDispose]() },
    ],
  };
}

function tokensInUse(records: Records): boolean {
  return records.all().some(({ status }) => status.state === "running" && (status.claim.secure || status.claim.trafficPrivate));
}

/** The path that set-up hands over by environment. */
function binaryOf(variable: string, name: string): string {
  const path = process.env[variable];
  if (path !== undefined && existsSync(path)) return path;
  return fail(
    "HOST_UNSUITABLE",
    `${variable} names ${path === undefined ? "nothing" : `'${path}', which is not there`}: ${name} is missing; start the node by ./svc, which installs it`,
  );
}

async function openRuntimes(home: string, settings: NodeSettings, spawner: Spawner, log: Log, needed: ReadonlySet<RuntimeName>) {
  const runsc = process.env["SVC_RUNSC"];
  const options = { home, spawner, log, programs: runsc === undefined ? {} : { runsc } };
  const runtimes = new Map<RuntimeName, OpenRuntime>();
  let runtime: OpenRuntime | undefined;
  const refusals: string[] = [];
  const wanted: readonly RuntimeName[] = settings.sandbox.runtime === "auto" ? runtimeNames : [settings.sandbox.runtime];
  for (const name of wanted) {
    try {
      runtime = await openRuntime(name, options);
      runtimes.set(name, runtime);
      break;
    } catch (error) {
      refusals.push(`${name}: ${asFailure(error).message}`);
    }
  }
  if (runtime === undefined) fail("HOST_UNSUITABLE", `no sandbox can run here (${refusals.join("; ")}); \`./svc doctor\` says how to mend it`);
  if (refusals.length > 0) log.warn({ refusals, runtime: runtime.name }, "a preferred driver does not work here");
  for (const name of needed) if (!runtimes.has(name)) runtimes.set(name, await openRuntime(name, options));
  return { runtime, runtimes };
}

async function networksFor(home: string, settings: NodeSettings, spawner: Spawner, log: Log): Promise<Networks | undefined> {
  if (process.getuid?.() !== 0) {
    log.warn("not root: sandboxes are reached through a socket and have no network of their own");
    return undefined;
  }
  const { subnet, denied_cidrs, dns, pool_size } = settings.network;
  return openNetworks({
    home,
    spawner,
    log,
    deniedCidrs: denied_cidrs,
    poolSize: pool_size,
    ...(subnet === "" ? {} : { subnet }),
    ...(dns.length === 0 ? {} : { dns: { upstreams: dns } }),
  });
}

function tally(names: readonly string[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}
