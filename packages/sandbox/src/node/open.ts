// Builds a node's parts, bottom up, and says in which order they close.
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { openDiskReserve } from "@svc/kit/disk-reserve.ts";
import type { Part } from "@svc/kit/lifecycle.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Metrics } from "@svc/kit/metrics.ts";
import { openSpawner, programEnvironment, type Spawner } from "@svc/kit/spawn.ts";
import type { Denial } from "../network/denial.ts";
import type { Networks } from "../network/networks.ts";
import { openNetworks } from "../network/open.ts";
import { openObserve } from "../observe/open.ts";
import type { RuntimeName } from "../runtime/runtime.ts";
import { openCatalogue } from "../template/catalogue.ts";
import { openTemplates, type Templates } from "../template/templates.ts";
import { buildSandboxes } from "./build-sandboxes.ts";
import { openCaptures } from "./captures.ts";
import { bootID, systemClock } from "./clock.ts";
import { openDrivers } from "./drivers.ts";
import { envdPath, keepEnvd } from "./envd-binary.ts";
import type { Node } from "./node.ts";
import { openNodeMetrics } from "./node-metrics.ts";
import { openPool } from "./pool.ts";
import { openGate } from "./queue.ts";
import { openRecords, type Records } from "./records.ts";
import { isOwned, openRegistry } from "./registry.ts";
import { loadInitKey, loadSeed, loadUploadKey, sweepHalfWritten } from "./secrets.ts";
import { openSetAside, SET_ASIDE_FILE } from "./set-aside.ts";
import { type NodeSettings, poolSizes } from "./settings.ts";
import { deleteSnapshot, findSnapshotTemplate } from "./snapshot.ts";
import type { SandboxRecord } from "./state.ts";
import { openTurns } from "./turns.ts";

const SYNC_TIMEOUT_MS = 10 * 60_000;

export type Opened = {
  readonly node: Node;
  readonly templates: Templates;
  /** In closing order; `everything` also removes what would outlive the node. */
  parts(everything: boolean): Part[];
};

/** `purpose` end: only to end what is there, for which neither the seed nor envd is needed, and none is made. */
export async function openNode(home: string, settings: NodeSettings, log: Log, metrics: Metrics, purpose: "serve" | "end"): Promise<Opened> {
  const aside = openSetAside(join(home, SET_ASIDE_FILE), log);
  const reserve = openDiskReserve(join(home, "reserve"));
  const { durability } = settings.node;
  const storage = { reserve, durability, aside };
  const records = openRecords(join(home, "sandboxes.db"), storage);
  aside.begin();
  // Only now, with the home held, is what lies half-written certainly nobody's.
  sweepHalfWritten(home);
  const ends = purpose === "end";
  const seed = ends ? { secret: randomBytes(32).toString("hex") } : loadSeed(home, settings.sandbox.access_token_hash_seed, tokensInUse(records));
  const envd = ends ? "" : keepEnvd(home, binaryOf("SVC_ENVD", "envd"));
  const spawner = openSpawner();
  const clock = systemClock;
  const registry = openRegistry(records, seed.secret, clock, aside);
  const captures = await openCaptures(join(home, "snapshots"), spawner, log, durability);
  const held = new Map<string, SandboxRecord>();
  const envdVersion = ends ? "" : execFileSync(envdPath(home, envd), ["-version"], { encoding: "utf8", env: programEnvironment() }).trim();
  const templates = await openTemplates({
    home,
    settings: settings.template,
    spawner,
    log,
    setUp: openCatalogue(process.env["SVC_TEMPLATES_DIR"] ?? join(home, "templates")),
    snapshots: { find: (asked) => findSnapshotTemplate(records, asked), remove: (asked) => deleteSnapshot(node, asked) },
    captures,
    sandboxes: buildSandboxes(() => node),
    envdVersion,
    secret: loadUploadKey(home),
    storage,
    imagesInUse: () => [...records.snapshots.list({}), ...registry.all(), ...held.values()].map(({ image }) => image.rootfs),
    tell: (type, templateID, details) => node.tell(type, { templateID }, details),
    onDeleted: (templateID) => node.pool.forget(templateID),
  });
  const needed = new Set([...runtimesInUse(records), ...[...templates.library.captured()].map((each) => each.runtime)]);
  const runsc = process.env["SVC_RUNSC"];
  const host = { home, spawner, log, programs: runsc === undefined ? {} : { runsc } };
  const drivers = await openDrivers({ wanted: settings.sandbox.runtime, needed, log, aside, host });
  const { runtime, runtimes, named: runtimeNamed } = drivers;
  const observe = openObserve({ home, log, metrics, records, registry, seed: seed.secret, auditLog: settings.node.audit_log, durability, runtimeNamed });
  const networks = await networksFor(home, settings, spawner, log, observe.onDenied);
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
    catalogue: templates.library,
    images: templates.images,
    captures,
    observe,
    turns: openTurns(),
    runtime,
    runtimes,
    runtimeNamed,
    networks,
    gate,
    get pool() {
      return pool;
    },
    seed: seed.secret,
    initKey: loadInitKey(home),
    envd,
    envdVersion,
    stages: (runtimeName) => async (stage, work) => {
      log.debug({ stage }, "stage begins");
      const end = nodeMetrics.stageSeconds.startTimer({ runtime: runtimeName, stage });
      try {
        return await work();
      } finally {
        end();
      }
    },
    tell(type, subject, details) {
      try {
        observe.tell(type, subject, details);
      } catch (error) {
        // What happened has happened, and was answered or will be: a report that fails must not undo it.
        log.error({ err: error, type, ...subject }, "an event could not be reported");
      }
      log.info({ ...subject, ...details }, type);
    },
    owned: () => registry.runningCount,
    creating: 0,
    takenDown: new Set(),
    undecided: new Map(),
    resisting: new Set(),
    frozen: new Set(),
    held,
    aside,
    reopenDrivers: drivers.reopen,
    stopping: false,
    domain: "localhost",
    proxy: undefined,
  };
  // Secrets, envd and folders of a first start: what is acknowledged later stands on them.
  if (durability === "disk") await spawner.check(["sync", "-f", "--", home], { timeoutMs: SYNC_TIMEOUT_MS });
  const pool = openPool(node, poolSizes(settings), settings.pool.size, settings.pool.refill_concurrency);
  return {
    node,
    templates,
    parts: (everything) => [
      { name: "builds", close: () => templates.queue.close() },
      { name: "pool", close: () => pool.close() },
      { name: "networks", close: async () => networks?.close({ everything }) },
      ...[...runtimes.values()].map((each) => ({ name: `runtime ${each.name}`, close: () => each.close({ everything }) })),
      { name: "templates", close: () => templates.close(everything) },
      { name: "captures", close: () => captures.close() },
      { name: "observation", close: () => observe.close() },
      { name: "records", close: async () => records.close() },
      { name: "spawn helper", close: () => spawner[Symbol.asyncDispose]() },
    ],
  };
}

function tokensInUse(records: Records): boolean {
  return records.all().some((record) => isOwned(record) && (record.status.claim.secure || record.status.claim.trafficPrivate));
}

/** Drivers that sandboxes of earlier runs, paused ones and snapshots need. */
function runtimesInUse(records: Records): Set<RuntimeName> {
  const names = new Set(records.snapshots.list({}).map(({ runtime }) => runtime));
  for (const { status } of records.all()) {
    if ("handle" in status && status.handle !== undefined) names.add(status.handle.runtime);
    if ("kept" in status && status.kept !== undefined) names.add(status.kept.runtime);
  }
  return names;
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

async function networksFor(
  home: string,
  settings: NodeSettings,
  spawner: Spawner,
  log: Log,
  onDenied: (denial: Denial) => void,
): Promise<Networks | undefined> {
  if (process.getuid?.() !== 0) {
    log.warn("not root: sandboxes are reached through a socket and have no network of their own");
    return undefined;
  }
  const { subnet, denied_cidrs, dns, dns_queries_per_second, pool_size } = settings.network;
  return openNetworks({
    home,
    spawner,
    log,
    deniedCidrs: denied_cidrs,
    poolSize: pool_size,
    onDenied,
    ...(subnet === "" ? {} : { subnet }),
    dns: { perSecond: dns_queries_per_second, ...(dns.length === 0 ? {} : { upstreams: dns }) },
  });
}

function tally(names: readonly string[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}
