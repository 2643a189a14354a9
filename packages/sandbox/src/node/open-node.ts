// Builds a node bottom up: storage and drivers, then each verb from its parts; `parts` is the order in which all of it closes.
// Longer than 300 lines: the composition of a node reads top to bottom in one place.
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { openDiskReserve } from "@svc/kit/disk-reserve.ts";
import { openKeyedLock } from "@svc/kit/keyed-lock.ts";
import { openKeyFile } from "@svc/kit/keys/key-file.ts";
import { Keys } from "@svc/kit/keys/keys.ts";
import { TenantQuotas } from "@svc/kit/keys/tenant-quotas.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Metrics } from "@svc/kit/metrics.ts";
import type { PeerCertificates } from "@svc/kit/peers/peer-certificates.ts";
import { openSpawner, programEnvironment } from "@svc/kit/spawn.ts";
import { binaryOf, envdPath, keepEnvd } from "../agent/binary.ts";
import { openInit } from "../agent/init.ts";
import { openInitKeys } from "../agent/init-keys.ts";
import { openStaging } from "../backup/staging.ts";
import { keysFrom, keysOfHome, newSecret } from "../cluster/deployment-secret.ts";
import { nodeIDOf } from "../cluster/node-id.ts";
import { openCluster } from "../cluster/open-cluster.ts";
import type { Networks } from "../network/networks.ts";
import { type Observe, openObserve, type Report } from "../observe/open-observe.ts";
import { openPreviewStore } from "../previews/store.ts";
import { openCheckpoints } from "../records/checkpoints.ts";
import { bootID, systemClock } from "../records/clock.ts";
import { runtimesInUse, tokensInUse } from "../records/in-use.ts";
import { openQuarantine, QUARANTINE_FILE } from "../records/quarantine.ts";
import { openRecords } from "../records/records.ts";
import { openRegistry } from "../records/registry.ts";
import { usedBy } from "../records/tenant-usage.ts";
import { openSecrets } from "../secrets/open-secrets.ts";
import { openSnapshotTransfer, type SnapshotTransfer } from "../snapshot-transfer/open-snapshot-transfer.ts";
import { openFirstUse, refuseNotOffered } from "../template/first-use.ts";
import { openTemplates } from "../template/open-templates.ts";
import { openSetupTemplates } from "../template/setup-templates.ts";
import { openVolumes } from "../volumes/open-volumes.ts";
import { Later } from "./later.ts";
import type { Node } from "./node.ts";
import { type Listing, openListing } from "./serve/list.ts";
import { loadSeed, sweepHalfWritten } from "./serve/secrets.ts";
import { openTenantGuard } from "./serve/tenants.ts";
import { type NodeSettings, poolSizes } from "./settings.ts";
import { openAdmission } from "./supply/admission.ts";
import { buildSandboxes } from "./supply/build-sandboxes.ts";
import { openCapacity } from "./supply/capacity.ts";
import { openCheckpointer } from "./supply/checkpoint.ts";
import { type Drivers, openDrivers } from "./supply/drivers.ts";
import { type Ends, openEnds } from "./supply/end.ts";
import { openIdentities } from "./supply/identity.ts";
import { joined } from "./supply/membership.ts";
import { openNodeMetrics, openStages } from "./supply/node-metrics.ts";
import { networksFor } from "./supply/node-networks.ts";
import { openPool, type Pool } from "./supply/pool.ts";
import { openPrecreatedPool, type PrecreatedPool } from "./supply/precreated-pool.ts";
import type { ProxyLink } from "./supply/proxy-link.ts";
import { openPulls } from "./supply/pulls.ts";
import { rulesSupply } from "./supply/rules-supply.ts";
import { openStart, type StartWarm } from "./supply/start.ts";
import { openTrust } from "./supply/trust.ts";
import { openUnusable, type Unusable } from "./supply/unusable.ts";
import { openAnswers } from "./verbs/answer.ts";
import { openClaims } from "./verbs/claims.ts";
import { openCreate } from "./verbs/create.ts";
import { openKeyedCreates } from "./verbs/create-keys.ts";
import { openQuarantineDeletion, type QuarantineDeletion } from "./verbs/delete-quarantined.ts";
import { openFork } from "./verbs/fork.ts";
import { openHandOver } from "./verbs/hand-over.ts";
import { openMoves } from "./verbs/move.ts";
import { openNamedSnapshots } from "./verbs/named-snapshots.ts";
import { openPauses } from "./verbs/pause.ts";
import { openResume } from "./verbs/resume.ts";
import { openSetNetwork } from "./verbs/set-network.ts";
import { openTake } from "./verbs/take.ts";
import { openTakeSnapshot } from "./verbs/take-snapshot.ts";
import { openTimeouts } from "./verbs/timeout.ts";
import { openWake } from "./verbs/wake.ts";
import { openDeaths } from "./watch/deaths.ts";
import { openDrain } from "./watch/drain.ts";
import { openGC } from "./watch/gc.ts";
import { type Idle, openIdle } from "./watch/idle.ts";
import { openLimitEvents } from "./watch/limit-events.ts";
import { endAll, recover, takeBackUnusable } from "./watch/recover.ts";
import { openWatch } from "./watch/watch.ts";

const MAX_WAITING_PER_SANDBOX = 64;
const SYNC_TIMEOUT_MS = 10 * 60_000;

/** Parts that earlier ones call: templates and verbs depend on each other. */
type CalledEarlier = {
  drivers: Drivers;
  ends: Ends;
  idle: Idle;
  listing: Listing;
  observe: Observe;
  pool: Pool;
  precreatedPool: PrecreatedPool;
  quarantined: QuarantineDeletion;
  start: StartWarm;
  transfer: SnapshotTransfer;
  unusable: Unusable;
};

/** With `purpose` "end" the node only ends existing sandboxes, so it neither reads nor creates a seed and envd. */
export async function openNode(
  home: string,
  settings: NodeSettings,
  log: Log,
  metrics: Metrics,
  purpose: "serve" | "end",
  apiKey: string,
  certificates?: PeerCertificates,
): Promise<Node> {
  const later = new Later<CalledEarlier>();
  const quarantine = openQuarantine(join(home, QUARANTINE_FILE), log);
  const reserve = openDiskReserve(join(home, "reserve"));
  const { durability } = settings.node;
  const storage = { reserve, durability, quarantine };
  const records = openRecords(join(home, "sandboxes.db"), storage);
  quarantine.begin();
  // The home's lock is held, so no other process is writing these half-written files.
  sweepHalfWritten(home);
  const isEnding = purpose === "end";
  const configuredSeed = settings.sandbox.access_token_hash_seed;
  const seed = isEnding ? randomBytes(32).toString("hex") : loadSeed(home, configuredSeed, tokensInUse(records)).secret;
  const membership = isEnding ? undefined : await joined(home, settings, { apiKey, seed, certificates, log });
  const keys = isEnding ? keysFrom(newSecret()) : (membership?.keys ?? keysOfHome(home, settings.node.deployment_secret_file));
  const apiKeys = isEnding ? undefined : new Keys({ store: membership?.apiKeys ?? openKeyFile(join(home, "api-keys.db")), log });
  const initKeys = openInitKeys(home, keys.initSeed, isEnding);
  await membership?.share(initKeys);
  const envd = isEnding ? "" : keepEnvd(home, binaryOf("SVC_ENVD", "envd"));
  const envdVersion = isEnding ? "" : execFileSync(envdPath(home, envd), ["-version"], { encoding: "utf8", env: programEnvironment() }).trim();
  const spawner = openSpawner();
  const clock = membership?.clock ?? systemClock;
  const registry = openRegistry(records, seed, clock, quarantine);
  const checkpoints = await openCheckpoints(join(home, "snapshots"), spawner, log, durability);
  const { start_concurrency, start_queue, start_timeout_seconds, max_sandboxes, max_timeout_seconds } = settings.sandbox;
  const lock = openKeyedLock("sandbox", MAX_WAITING_PER_SANDBOX);
  const population = { running: () => registry.runningCount, pauseIdle: () => later.get("idle").pauseOne() };
  const quotas = new TenantQuotas({ quotasOf: (tenant) => apiKeys?.quotasOf(tenant), usedBy: (tenant) => usedBy(registry, tenant) });
  const capacity = openCapacity(max_sandboxes, population, () => nodeIDOf(home), quotas);
  const admission = openAdmission(start_concurrency, start_queue, start_timeout_seconds * 1000);
  const nodeMetrics = openNodeMetrics(metrics, {
    states: () => [...registry.all()].map((record) => record.status.state),
    pool: () => ({ started: later.get("pool").ready(), precreated: later.get("precreatedPool").ready }),
    waiting: () => admission.waiting,
    clockSkewMs: () => membership?.clock.skewMs,
  });
  const stages = openStages(nodeMetrics, log);
  const proxy: ProxyLink = { domain: "localhost", drop: () => {}, waitingFor: () => 0, trafficOf: () => ({ open: 0, begun: 0 }) };
  /** Paused sandboxes of which this process has removed all running parts. */
  const takenDown = new Set<string>();

  const previews = openPreviewStore({ path: join(home, "previews.db"), durability, reserve, wallMs: () => clock.wallMs() });
  const report: Report = (...event) => {
    later.get("observe").report(...event);
    later.get("transfer").follow(...event);
    const [type, { sandboxID }] = event;
    if (type === "sandbox.ended" && sandboxID !== undefined) previews.ended(sandboxID);
  };
  const forget = (templateID: string) => later.get("pool").forget(templateID);
  const clearRemembered = () => later.get("quarantined").clearRemembered();
  const snapshots = openNamedSnapshots({ snapshots: records.snapshots, checkpoints, quarantine, forget, clearRemembered, report });
  const setUp = openSetupTemplates(process.env["SVC_TEMPLATES_DIR"] ?? join(home, "templates"));
  const templates = await openTemplates({
    home,
    settings: settings.template,
    spawner,
    log,
    setUp,
    snapshots: { find: snapshots.template, unreadable: records.snapshots.unreadable, remove: snapshots.delete },
    checkpoints,
    sandboxes: buildSandboxes(() => ({ admission, start: later.get("start"), ends: later.get("ends"), drivers: later.get("drivers") })),
    envdVersion,
    secret: keys.uploadKey,
    storage,
    imagesInUse: () =>
      [...records.snapshots.list({}), ...registry.all(), ...later.get("unusable").all(), ...later.get("precreatedPool").standing()].map(
        ({ image }) => image.rootfs,
      ),
    report: (type, templateID, details) => report(type, { templateID }, details),
    async onDeleted(templateID) {
      await Promise.all([forget(templateID), later.get("precreatedPool").clear()]);
      await clearRemembered();
    },
    keep: (...build) => later.get("transfer").templates.keep(...build),
    onChanged: (templateID) => later.get("transfer").templates.soon(templateID),
  });
  const { index: templateIndex, images } = templates;
  const needed = new Set([...runtimesInUse(records), ...[...templateIndex.checkpointed()].map((each) => each.runtime)]);
  const runsc = process.env["SVC_RUNSC"];
  const host = { home, spawner, log, programs: runsc === undefined ? {} : { runsc } };
  const drivers = await openDrivers({ wanted: settings.sandbox.runtime, needed, log, quarantine, host });
  const auditLog = settings.node.audit_log;
  const retained = { keptMs: settings.retention.events_hours * 3_600_000, maxEvents: settings.retention.events_count };
  const nodeID = () => nodeIDOf(home);
  const observe = openObserve({
    home,
    log,
    metrics,
    records,
    registry,
    seed,
    auditLog,
    retained,
    durability,
    usageKeptMs: settings.retention.usage_days * 24 * 3_600_000,
    checkpoints,
    clock,
    reserve,
    nodeID,
    runtimeNamed: drivers.named,
  });
  const { collect } = observe;
  later.set({ drivers, observe });
  const issuer = () => settings.egress.issuer || `${settings.proxy.domains.length === 0 ? "http" : "https"}://${proxy.domain}`;
  const onSecret = () => networks?.valuesChanged();
  const { egressKey: deploymentKey } = keys;
  const secrets = await openSecrets({ home, deploymentKey, seed, maxSecrets: settings.egress.max_secrets, issuer, onChange: onSecret });
  const supply = rulesSupply(secrets, registry, isEnding ? "" : settings.egress.ca_file);
  const networks: Networks | undefined = await networksFor(home, settings, spawner, log, observe.onDenied, supply);

  const volumes = await openVolumes({ home, settings: settings.volumes, seed, spawner, registry, quotas, nodeID, metrics, log });
  const { ownership } = membership ?? {};
  const claims = openClaims({ lock, registry, ownership, listed: (record) => later.get("listing").one(record), transfer: () => later.get("transfer") });
  const transfer: SnapshotTransfer = await openSnapshotTransfer({
    home,
    settings: { snapshots: settings.snapshots, objects: isEnding ? { ...settings.objects, url: "" } : settings.objects, durability },
    env: process.env,
    initKeys,
    bootID: bootID(),
    spawner,
    checkpoints,
    registry,
    snapshots: records.snapshots,
    quarantine,
    templates,
    setUp,
    runtimes: drivers.runtimes,
    sharing: claims.sharing,
    catalog: membership?.catalog,
    nodeID,
    apiKey,
    neighbours: membership?.neighbours,
    metrics,
    report,
    log,
  });
  later.set({ transfer });

  const boot = { bootID: bootID(), envd, envdVersion };
  const up = { home, initKeys, networks, checkpoints, images, volumes, stages };
  const onCopyMs = settings.sandbox.on_copy_timeout_seconds * 1000;
  const identities = openIdentities({ seed, clock, send: openInit(initKeys), onCopyMs });
  const trust = openTrust({ seed, secrets, identities, log });
  const answer = openAnswers(seed, proxy);
  const timeouts = openTimeouts({ maxSeconds: max_timeout_seconds, clock, lock, registry, report });
  const ends = openEnds({ lock, registry, drivers, checkpoints, networks, proxy, takenDown, collect, report, metrics: nodeMetrics, stages, quarantine, log });
  const { size, refill_concurrency } = settings.pool;
  const precreatedPool = openPrecreatedPool(
    { ...up, slot: membership?.slot, drivers, admission, registry, metrics: nodeMetrics, log },
    { ...settings.pool, max_sandboxes },
  );
  later.set({ ends, precreatedPool });
  const limits = { ...settings.sandbox, ...settings.template };
  const start = openStart({ ...up, ...boot, slot: membership?.slot, registry, drivers, ends, precreatedPool, limits, log });
  const pool = openPool({ start, ends, templateIndex, drivers, registry, envdVersion, log }, poolSizes(settings), size, refill_concurrency);
  later.set({ start, pool });
  const handOver = openHandOver({ clock, registry, identities, trust, ends, stages, report });
  const starting = { start, precreatedPool, handOver, admission, capacity, quotas, limits, answer, timeouts, volumes, metrics: nodeMetrics, log };
  const { untilDurable } = transfer;
  const buildOnFirstUse = settings.template.build_on_first_use ? openFirstUse(templates, settings.sandbox) : undefined;
  const fetch = async (asked: string) => (await transfer.fetch(asked)) ?? refuseNotOffered(asked) ?? (await buildOnFirstUse?.(asked));
  const keyed = openKeyedCreates({ home, membership, records, clock });
  const create = openCreate({
    ...starting,
    templateIndex,
    drivers,
    keyed,
    pool,
    networks,
    secrets,
    ends,
    clock,
    checkClock: () => membership?.clock.check(),
    fetch,
    isOpenTo: templates.isOpenTo,
  });
  const checkpointer = openCheckpointer({ drivers, checkpoints, images, stages });
  const pauses = openPauses({ lock, registry, drivers, checkpoints, checkpointer, networks, proxy, takenDown, collect, report, stages, clock, log });
  const idle = openIdle({ lock, registry, drivers, pauses, proxy, metrics, log }, settings.sandbox);
  const resume = openResume({ ...up, ...boot, ...starting, ownership, lock, registry, drivers, identities, trust, claims, takenDown, clock, report });
  const moves = openMoves({
    apiKey,
    send: membership?.peers.send,
    volumes,
    ownership,
    lock,
    registry,
    drivers,
    claims,
    pauses,
    proxy,
    resume,
    transfer,
    report,
    clock,
    log,
  });
  const takes = openTake({ apiKey, membership, transfer, registry, records, quarantine, claims, resume, capacity, report, log });
  const fork = openFork({ ...starting, lock, registry, checkpoints, checkpointer, report });
  const takeSnapshot = openTakeSnapshot({ lock, registry, drivers, checkpoints, checkpointer, snapshots: records.snapshots, templateIndex, clock, report });
  const setNetwork = openSetNetwork({ lock, registry, withdraw: claims.withdraw, networks, secrets, trust, report, log });
  const listing = openListing({ registry, clock, seed, proxy, idle });
  later.set({ idle, listing });
  const wake = openWake({ registry, resume, minTimeoutSeconds: settings.sandbox.auto_resume_min_timeout_seconds });
  const deaths = openDeaths({ registry, drivers, ends, pool, limitEvents: openLimitEvents({ report, clock }) });
  const drain = openDrain({ home, capacity, registry, drivers, pauses, moves, log });
  const unusable = openUnusable({ drivers, registry, snapshots: records.snapshots, templateIndex, checkpoints, networks, quarantine, log });
  const quarantined = openQuarantineDeletion({ home, lock, records, registry, unusable, ends, drivers, checkpoints, networks, quarantine, log });
  later.set({ unusable, quarantined });
  const collecting = { registry, snapshots: records.snapshots, named: snapshots, templates, transfer, checkpoints, ends, nodeID, log };
  const gc = openGC({ ...collecting, settings: settings.retention, pooled: poolSizes(settings), wallMs: clock.wallMs });
  const pulls = openPulls({ rules: settings.template.pull, labels: settings.node.labels, templates, transfer, nodeID, log });
  const isLost = membership?.isLost === true;
  const kept = { records, registry, unusable, quarantined, drivers, checkpoints, networks, templateIndex, quarantine };
  const recovering = { home, ...boot, ...kept, identities, ends, pool, isLost, membership, transfer, clock, log };
  const watching = { registry, records, deaths, ends, pauses, idle, quarantine, takeBackUnusable: () => takeBackUnusable(recovering), clock, log };

  // I41
  const all = (destroys: boolean) => ({ everything: destroys || (registry.size === 0 && quarantine.all().length === 0) });
  const life = { create, ends, quarantined, quarantine, deaths, pauses, resume, moves, fork, takeSnapshot };
  const directory = { ...registry, wake, isMoving: (id: string) => claims.leaving.has(id), moveOver: claims.over };
  const shared = settings.proxy.domains.length === 0 ? proxy : undefined;
  const facing = {
    home,
    seed,
    membership,
    registry,
    records,
    quarantine,
    observe,
    templates,
    volumes,
    directory,
    claims,
    capacity,
    admission,
    pool,
    previews,
    transfer,
    proxy: shared,
  };
  let program = "";
  const cluster = openCluster({ ...facing, labels: settings.node.labels, runtime: drivers.runtime.name, program: () => program });
  // A first start has written secrets, envd and folders; later acknowledgements depend on them, so they are synced first (I20).
  if (durability === "disk") await spawner.check(["sync", "-f", "--", home], { timeoutMs: SYNC_TIMEOUT_MS });
  return {
    snapshots,
    verbs: { ...life, snapshots, setNetwork, timeouts, listing, answer, registry, capacity, untilDurable },
    templates,
    fetch,
    observe,
    transfer,
    volumes,
    secrets,
    previews,
    cluster,
    directory,
    proxy,
    pool,
    capacity,
    runtime: drivers.runtime.name,
    membership,
    drain,
    takes,
    keyed,
    apiKeys,
    quotas,
    guard: openTenantGuard({ registry, quarantine, snapshots: records.snapshots }),
    gc,
    pulls,
    stageBackup: openStaging({ home, settings, spawner, checkpoints, layers: templates.builder.layers, volumes, nodeID, env: process.env }),
    async recover() {
      if (recovering.isLost) records.keys.forget();
      program = (await drivers.runtimes.get("gvisor")?.program()) ?? "";
      const recovered = await recover(recovering);
      membership?.settled();
      return recovered;
    },
    endAll: () => endAll(recovering),
    watch: () => openWatch(watching),
    parts: (destroys) => [
      { name: "named keys", close: async () => apiKeys?.close() },
      { name: "previews", close: async () => previews.close() },
      ...(membership?.parts() ?? []),
      { name: "pulls", close: () => pulls.close() },
      { name: "retention", close: () => gc.close() },
      { name: "idle pauses", close: () => idle.close() },
      { name: "drain", close: () => drain.close() },
      { name: "builds", close: () => templates.queue.close() },
      { name: "pool", close: () => pool.close() },
      { name: "precreatedPool", close: () => precreatedPool.close() },
      { name: "networks", close: async () => networks?.close(all(destroys)) },
      ...[...drivers.runtimes.values()].map((each) => ({ name: `runtime ${each.name}`, close: () => each.close(all(destroys)) })),
      { name: "drivers that are gone", close: () => drivers.closeToEnd({ everything: destroys }) },
      { name: "volumes", close: () => volumes.close(all(destroys).everything) },
      { name: "templates", close: () => templates.close(all(destroys).everything) },
      { name: "snapshot-transfer", close: () => transfer.close() },
      { name: "checkpoints", close: () => checkpoints.close() },
      { name: "observation", close: () => observe.close() },
      { name: "records", close: async () => records.close() },
      { name: "spawn helper", close: () => spawner[Symbol.asyncDispose]() },
    ],
  };
}
