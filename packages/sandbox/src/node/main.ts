// The node: control plane, sandboxes and proxy of one machine, on one port.
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import { createServer } from "node:net";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { clusterOperations } from "@svc/contract/cluster.ts";
import { Failure, fail } from "@svc/contract/failures.ts";
import { nodeControlOperations } from "@svc/contract/node-control.ts";
import { nodeOperations } from "@svc/contract/sandbox.ts";
import { keepStateFile } from "@svc/contract/state-file.ts";
import type { Sourced } from "@svc/kit/api-key.ts";
import { loadApiKey } from "@svc/kit/api-key.ts";
import { complained } from "@svc/kit/config.ts";
import { lockHome } from "@svc/kit/home-lock.ts";
import { apiKeyHandlers } from "@svc/kit/keys/handlers.ts";
import { closeParts, ready, untilStopped } from "@svc/kit/lifecycle.ts";
import { dialledAt, type ListenAddress, urlOf } from "@svc/kit/listen.ts";
import { type Log, openLog, openSentences } from "@svc/kit/log.ts";
import { type Metrics, openMetrics } from "@svc/kit/metrics.ts";
import { openPeerCertificates, type PeerCertificates } from "@svc/kit/peers/peer-certificates.ts";
import { warnIfPlain } from "@svc/kit/peers/settings.ts";
import { fingerprintOf } from "@svc/kit/secret.ts";
import { serve } from "@svc/kit/serve.ts";
import { openSpans } from "@svc/kit/spans.ts";
import { refuseUnfinished } from "../backup/restore.ts";
import type { Fence } from "../cluster/presence.ts";
import { previewHandlers } from "../previews/routes.ts";
import { openProxy } from "../proxy/server.ts";
import { startTicksOf } from "../runtime/process.ts";
import { identityRoutes, secretHandlers } from "../secrets/routes.ts";
import { templateHandlers } from "../template/routes.ts";
import { uuidOf } from "../template/show.ts";
import { uploadRoutes } from "../template/upload-routes.ts";
import { volumeHandlers, volumeRoutes } from "../volumes/routes.ts";
import type { Node } from "./node.ts";
import { openNode } from "./open-node.ts";
import { clusterHandlers } from "./serve/cluster-handlers.ts";
import { openNodeConsole } from "./serve/console.ts";
import { endExported } from "./serve/end-exported.ts";
import { nodeControlHandlers } from "./serve/node-control.ts";
import { nodePages } from "./serve/pages.ts";
import { nodeHandlers } from "./serve/routes.ts";
import { ownIDs } from "./serve/tenants.ts";
import { transferRoutes } from "./serve/transfer-routes.ts";
import { load, type NodeSettings } from "./settings.ts";
import { certificatesOf } from "./supply/certificates.ts";
import { keyHandlers } from "./verbs/create-keys.ts";

const KEEP_ALIVE_MS = 120_000;

export async function main(argv: readonly string[]): Promise<number> {
  try {
    return await run(argv);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    return complained("node", error);
  }
}

async function run(argv: readonly string[]): Promise<number> {
  const destroyAll = argv.includes("--destroy-all");
  const isToLeave = argv.includes("--leave-exported");
  if (isToLeave && !destroyAll) fail("SETTING_INVALID", "--leave-exported says what --destroy-all leaves: expected both, or neither");
  const loaded = load(argv.filter((flag) => flag !== "--destroy-all" && flag !== "--leave-exported"));
  if (loaded === "help") return 0;
  const { settings, home } = loaded;
  mkdirSync(join(home, "secrets"), { recursive: true, mode: 0o700 });
  await lockHome(home, "node");
  refuseUnfinished(home);
  const log = destroyAll ? openSentences("svc node") : openLog("node", settings.node.log_level);
  const metrics = openMetrics();
  // A node that could not be reached must not create anything on the host, so the port is tried first.
  if (!destroyAll) await tryListening(settings.node.listen);
  if (destroyAll) await endExported({ home, settings, isToLeave, env: process.env, log });
  const apiKey = destroyAll ? undefined : loadApiKey({ home, env: process.env });
  const peerCertificates = destroyAll ? undefined : openPeerCertificates(settings.peers, log, metrics);
  const node = await openNode(home, settings, log, metrics, destroyAll ? "end" : "serve", apiKey?.secret ?? "", peerCertificates);
  if (apiKey === undefined) {
    const { ended, left } = await node.endAll();
    const code = await closeParts(log, node.parts(true));
    process.stdout.write(
      `${ended.length === 0 ? "no sandbox was" : ended.length === 1 ? "1 sandbox was" : `${ended.length} sandboxes were`} ended on ${home}\n`,
    );
    for (const sandboxID of left) process.stderr.write(`svc node: sandbox ${sandboxID} could not be ended; the lines above say why\n`);
    return code || (left.length === 0 ? 0 : 1);
  }

  try {
    return await serveUntilStopped({ peerCertificates, node, home, settings, log, metrics, apiKey, configPath: loaded.configPath });
  } catch (error) {
    log.error({ err: error }, "the node cannot start");
    await closeParts(log, node.parts(false));
    throw error;
  }
}

type Serving = {
  peerCertificates: PeerCertificates | undefined;
  node: Node;
  home: string;
  settings: NodeSettings;
  log: Log;
  metrics: Metrics;
  apiKey: Sourced;
  configPath: string;
};

async function serveUntilStopped({ peerCertificates, node, home, settings, log, metrics, apiKey, configPath }: Serving): Promise<number> {
  const certificates = certificatesOf(settings, home, log, metrics);
  const served = peerCertificates ?? certificates;
  if (served === undefined) warnIfPlain(log, settings.node.listen, "traffic to this node");
  const { observe, templates, transfer } = node;
  const pages = nodePages();
  const spans = await openSpans({ server: "node", version: pages.version, log });
  const { registry, listing } = node.verbs;
  const webConsole = openNodeConsole({ ...pages, home, settings, apiKey: apiKey.secret, registry, listing, log, metrics });
  const app = serve({
    operations: { ...nodeOperations, ...nodeControlOperations, ...clusterOperations },
    handlers: {
      ...nodeHandlers(node.verbs),
      ...nodeControlHandlers({ home, drain: node.drain, membership: node.membership }),
      ...clusterHandlers({ takes: node.takes, transfer, listing: node.verbs.listing, snapshots: node.snapshots, templates, stageBackup: node.stageBackup }),
      ...keyHandlers(node.keyed),
      collectGarbage: ({ dryRun }: { dryRun: boolean }) => node.gc.run(dryRun),
      ...node.pulls.handlers,
      ...templateHandlers(
        templates,
        node.fetch,
        transfer.templates.untilDurable,
        settings.template.max_disk_size_mb,
        uuidOf(fingerprintOf(apiKey.secret, "creator")),
      ),
      ...observe.handlers,
      getSandboxesMetrics: ({ sandbox_ids }, context) =>
        observe.handlers.getSandboxesMetrics({ sandbox_ids: ownIDs(context.principal, registry, sandbox_ids) }, context),
      ...apiKeyHandlers(node.apiKeys, node.quotas, () => node.volumes.counts()),
      ...volumeHandlers(node.volumes),
      ...secretHandlers(node.secrets),
      ...previewHandlers({ store: node.previews, mustExist: (id) => registry.owned(id), domain: () => node.proxy.domain, wallMs: Date.now }),
    },
    apiKey: apiKey.secret,
    keys: node.apiKeys,
    guard: node.guard,
    quotas: node.quotas,
    anyOrigin: true,
    pages,
    log,
    metrics,
    spans,
    raw(scope) {
      observe.streams.routes(scope);
      node.cluster.routes(scope, { apiKey: apiKey.secret, version: pages.version });
      uploadRoutes(templates.builder.uploads)(scope);
      transferRoutes(transfer.files)(scope);
      volumeRoutes(node.volumes)(scope);
      identityRoutes(node.secrets)(scope);
      transfer.routes(scope);
      webConsole.routes(scope);
    },
    audit: (entry) => observe.audit?.entry(entry),
  });
  app.server.keepAliveTimeout = KEEP_ALIVE_MS;
  app.server.requestTimeout = 0;
  // An abstract socket leaves no file behind after a kill, and no sandbox shares this network namespace.
  const control = `\0svc-node-${process.pid}-${randomBytes(6).toString("hex")}`;
  await app.listen({ path: control });

  const recovered = await node.recover();
  const { brand } = settings.node;
  const domains = certificates?.domains ?? settings.proxy.domains;
  const proxy = await openProxy({
    listen: settings.node.listen,
    control,
    directory: node.directory,
    previews: node.previews,
    apiKey: apiKey.secret,
    keys: node.apiKeys,
    brands: brand,
    domains,
    certificates: served,
    dropsKeyAsBearer: settings.proxy.drop_key_as_bearer,
    outputBytesPerSecond: settings.proxy.output_mb_per_second * 1_000_000,
    limits: { connections: settings.proxy.max_connections, connectionsPerPeer: settings.proxy.max_connections_per_address },
    log,
    metrics,
  }).catch((error: unknown) => cannotListen(settings.node.listen, error));
  node.proxy.drop = (sandboxID) => proxy.drop(sandboxID);
  node.proxy.trafficOf = (sandboxID) => proxy.trafficOf(sandboxID);
  node.proxy.waitingFor = (sandboxID) => proxy.waitingFor(sandboxID);
  node.proxy.domain = settings.proxy.domains[0] ?? `${domains[0] ?? "localhost"}:${proxy.address.port}`;
  const address = dialledAt(served === undefined ? settings.node.listen.host : proxy.local.host, proxy.local.port);
  webConsole.start(app, address, proxy.address.port);
  const watch = node.watch();
  node.membership?.presence.onDraining((isDraining) => node.drain.set(isDraining));
  node.drain.start();
  node.pool.start();
  observe.start();
  await transfer.start();
  void node.takes.start().catch((error: unknown) => log.error({ err: error }, "the list of this node's sandboxes in etcd could not be checked"));
  templates.start();
  node.gc.start();
  node.pulls.start();
  const url = urlOf(settings.node.listen.host, proxy.address.port, served === undefined ? "http" : "https");
  const stateFile = join(home, "node.json");
  // Clients on this machine send the API key only to the process that this file names.
  const self = { pid: process.pid, startTicks: startTicksOf(process.pid), url, address, authorityFile: certificates?.authorityFile };
  const described = `${JSON.stringify({ ...self, runtime: node.runtime, apiKeySource: apiKey.source })}\n`;
  const kept = keepStateFile(stateFile, described, () =>
    log.error({ stateFile }, "the disk is full: the file with the node's address is written once there is space; the node serves meanwhile"),
  );
  log.info({ url, home, runtime: node.runtime, apiKeySource: apiKey.source, apiKeyGenerated: apiKey.generated, config: configPath, ...recovered }, "ready");
  node.membership?.presence.serve(advertisedAt(settings, proxy.address.port));
  let isToRejoin = false;
  const fenced = node.membership?.presence.fenced.then(({ kind, reason }) => {
    isToRejoin = kind === "emptied";
    log.error({ reason }, fencedMessages[kind]);
    process.kill(process.pid, "SIGTERM");
    return 1;
  });
  ready("node", url);

  const code = await untilStopped(log, [
    // The state file is removed before the port closes, since another process may take the port from then on.
    { name: "state file", close: async () => kept.remove() },
    { name: "console", close: async () => webConsole.close() },
    { name: "proxy", close: () => stopTaking(node, () => proxy.close()) },
    { name: "control plane", close: () => app.close() },
    { name: "spans", close: async () => spans?.close() },
    { name: "watch", close: watch.close },
    ...node.parts(false),
    { name: "certificates", close: async () => peerCertificates?.close() },
  ]);
  if (isToRejoin && code === 0) restart();
  // A non-zero code makes the supervisor restart a fenced node.
  return fenced === undefined ? code : Promise.race([fenced, Promise.resolve(code)]);
}

/** Log messages for a node whose deployment no longer counts it as this process. */
const fencedMessages: Readonly<Record<Fence["kind"], string>> = {
  dead: "this node was declared dead: it stops, and finds out at its next start what it still owns",
  removed: "this node was removed from the deployment: it stops; started again, it joins again, and what ran on it ends",
  replaced: "another process runs as this node: this one stops",
  emptied:
    "etcd has lost the records of this deployment: this node restarts by itself and writes its own again; its sandboxes go on meanwhile, and nothing was declared dead",
};

/**
 * Replaces this process by a new one of the same command with the same id, so that a node without a supervisor rejoins as well. Every part is closed,
 * and sandboxes are no children of this process.
 */
function restart(): never {
  process.execve?.(process.execPath, [process.execPath, ...process.execArgv, ...process.argv.slice(1)], process.env as Record<string, string>);
  throw new Error("the node could not restart");
}

/** Returns the URL at which gateways and other nodes reach this node. */
function advertisedAt({ cluster, node, peers }: NodeSettings, port: number): string {
  const scheme = peers.certs === "" ? "http" : "https";
  if (cluster.advertise !== "") return cluster.advertise.replace(/\/$/, "");
  const { host } = node.listen;
  if (host !== "0.0.0.0" && host !== "::") return urlOf(host, port, scheme);
  const own = Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .find(({ internal, family }) => !internal && family === "IPv4");
  return urlOf(own?.address ?? "127.0.0.1", port, scheme);
}

/** Opens the port and closes it again. @throws SETTING_INVALID where it cannot be opened. */
async function tryListening(address: ListenAddress): Promise<void> {
  const server = createServer();
  server.listen(address);
  await once(server, "listening").catch((error: unknown) => cannotListen(address, error));
  await new Promise((closed) => server.close(closed));
}

function cannotListen({ host, port }: ListenAddress, error: unknown): never {
  const code = (error as NodeJS.ErrnoException).code;
  const isTaken = code === "EADDRINUSE";
  const why = isTaken ? "the port is in use" : code === "EACCES" ? "the port may not be opened by this user" : (error as Error).message;
  const advice = isTaken ? "stop the other server, or choose another port with --listen HOST:PORT" : "choose another address with --listen HOST:PORT";
  fail("SETTING_INVALID", `setting node.listen: cannot listen on ${host}:${port}: ${why}; ${advice}`, { cause: error });
}

/** Stops taking requests; the sandboxes keep running. */
async function stopTaking(node: Node, close: () => Promise<void>): Promise<void> {
  node.capacity.stop();
  // Long-lived streams to gateways and readers of events would keep the proxy from closing.
  node.observe.streams.end();
  node.cluster.end();
  await close();
}

if (process.argv[1] === import.meta.filename) process.exit(await main(process.argv.slice(2)));
