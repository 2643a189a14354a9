// The gateway: one address in front of all nodes; it stores nothing that it could not learn again from them.
// Longer than 300 lines: the composition of a gateway reads top to bottom in one place.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Failure, fail } from "@svc/contract/failures.ts";
import { nodeControlOperations } from "@svc/contract/node-control.ts";
import { nodesOperations } from "@svc/contract/nodes.ts";
import { nodeOperations } from "@svc/contract/sandbox.ts";
import { keepStateFile } from "@svc/contract/state-file.ts";
import { MOUNTED_KEY_PATH, suppliedApiKey } from "@svc/kit/api-key.ts";
import { complained } from "@svc/kit/config.ts";
import { openConsole, quietContext } from "@svc/kit/console/open-console.ts";
import { gatewaySeries } from "@svc/kit/console/ring.ts";
import { openEtcd } from "@svc/kit/etcd/client.ts";
import { lockHome } from "@svc/kit/home-lock.ts";
import { openKeptCalls } from "@svc/kit/kept-calls.ts";
import { openKeyEtcd } from "@svc/kit/keys/key-etcd.ts";
import { openKeyFile } from "@svc/kit/keys/key-file.ts";
import { Keys } from "@svc/kit/keys/keys.ts";
import { TenantQuotas } from "@svc/kit/keys/tenant-quotas.ts";
import { ready, untilStopped } from "@svc/kit/lifecycle.ts";
import { dialledAt, urlOf } from "@svc/kit/listen.ts";
import { openLog } from "@svc/kit/log.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import { openPeerCertificates } from "@svc/kit/peers/peer-certificates.ts";
import { PeerClient } from "@svc/kit/peers/peer-client.ts";
import { needsPeerCertificates, warnIfPlainNodes } from "@svc/kit/peers/settings.ts";
import { type Context, serve } from "@svc/kit/serve.ts";
import { openSpans } from "@svc/kit/spans.ts";
import { openCertificates } from "@svc/kit/tls/certificates.ts";
import { openGatewayMetrics } from "./gateway-metrics.ts";
import { isNodeHome, startTicks } from "./home.ts";
import { Arrivals } from "./members/arrivals.ts";
import { type EtcdDirectory, openEtcdDirectory } from "./members/etcd-directory.ts";
import { fateOf } from "./members/fate.ts";
import { Lookups } from "./members/lookups.ts";
import { Members } from "./members/members.ts";
import { StoredOnly } from "./members/stored-only.ts";
import { TenantUsage } from "./members/tenant-usage.ts";
import { openMetricsListener } from "./metrics-listener.ts";
import { AdmissionQueue } from "./place/queue.ts";
import { openGatewayProxy, openNodeTargets } from "./proxy/server.ts";
import { openCharged } from "./serve/charged.ts";
import { openCreate } from "./serve/create.ts";
import { openMergedEvents } from "./serve/events.ts";
import { fileRoutes } from "./serve/file-routes.ts";
import { gatewayHandlers } from "./serve/handlers.ts";
import { identityRoutes } from "./serve/identity.ts";
import { openMerge } from "./serve/merge.ts";
import { openGatewayPreviews } from "./serve/previews.ts";
import { openRelay } from "./serve/relay.ts";
import { openScaling } from "./serve/scaling.ts";
import { openGatewaySecrets } from "./serve/secrets.ts";
import { openGatewayGuard } from "./serve/tenants.ts";
import { openGatewayVolumes } from "./serve/volumes.ts";
import { openGatewayWebhooks } from "./serve/webhooks.ts";
import { load } from "./settings.ts";

const KEEP_ALIVE_MS = 120_000;
/** The admission queue is also checked at this interval, in case no frame of a node triggers it. */
const QUEUE_MS = 250;

const { version } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")) as { version: string };

export async function main(argv: readonly string[]): Promise<number> {
  try {
    return await run(argv);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    return complained("gateway", error);
  }
}

async function run(argv: readonly string[]): Promise<number> {
  const loaded = load(argv);
  if (loaded === "help") return 0;
  const { home } = loaded;
  const settings = loaded.settings.gateway;
  const { domains } = loaded.settings.proxy;
  const { etcd, name } = loaded.settings.cluster;
  if (settings.nodes.length === 0 && etcd.length === 0)
    fail(
      "SETTING_INVALID",
      "settings gateway.nodes and cluster.etcd are both empty: give the nodes with --nodes http://HOST:PORT,http://HOST:PORT, or etcd with --etcd http://HOST:PORT",
    );
  if (settings.nodes.length > 0 && etcd.length > 0)
    fail("SETTING_INVALID", "settings gateway.nodes and cluster.etcd are both given: expected one of them; with etcd the gateway finds the nodes there");
  const missingKey = `there is no API key: give the deployment's by SVC_API_KEY or in ${MOUNTED_KEY_PATH}; a gateway generates none, since its nodes have the same`;
  const { secret: apiKey, source } = suppliedApiKey({ env: process.env }) ?? fail("SETTING_INVALID", missingKey);
  if (isNodeHome(home)) fail("SETTING_INVALID", `${home} is a node's home: give the gateway its own with --home DIR`);
  await lockHome(home, "gateway");
  const log = openLog("gateway", settings.log_level);
  const metrics = openMetrics();
  const counted = openGatewayMetrics(metrics);
  const nowMs = () => performance.now();
  const certificates = openCertificates(loaded.settings.tls, { home, domains, log, metrics });

  const { peers: peersChoice } = loaded.settings;
  needsPeerCertificates("gateway.nodes", settings.nodes, peersChoice);
  const peerCertificates = openPeerCertificates(peersChoice, log, metrics);
  const peers = new PeerClient(peerCertificates, "node");
  warnIfPlainNodes(log, settings.nodes);

  const targets = openNodeTargets({ connections: settings.max_connections, connectionsPerPeer: settings.max_connections_per_address });
  const calls = openKeptCalls({ peers });
  const queue = new AdmissionQueue({ length: settings.queue, waitMs: settings.queue_timeout_seconds * 1000 }, nowMs);
  let domain = domains[0];
  let directory: EtcdDirectory | undefined;
  const members = new Members({
    apiKey,
    domain: () => domain ?? "localhost",
    log,
    silenceMs: settings.node_silence_ms,
    peers,
    openTarget: targets.open,
    onCapacity: () => queue.release(1),
    onLost(member) {
      counted.lost();
      calls.drop(member.url);
    },
    removedNode: (slot) => directory?.removedNode(slot),
  });
  const lookups = new Lookups(members, apiKey);
  const arrivals = new Arrivals({ members, apiKey, directory: () => directory, log });
  const relay = openRelay(apiKey, calls.send);
  const rules = { strategy: settings.placement, memoryOvercommit: settings.memory_overcommit, memoryShare: settings.memory_share };
  const events = openMergedEvents(members, apiKey);
  const keyEtcd = etcd.length === 0 ? undefined : openEtcd({ endpoints: etcd, certificates: peerCertificates });
  const keyStore = keyEtcd === undefined ? openKeyFile(join(home, "api-keys.db")) : openKeyEtcd({ etcd: keyEtcd, name, log });
  const keys = new Keys({ store: keyStore, log });
  const tenantUsage = new TenantUsage(members, nowMs);
  const quotas = new TenantQuotas({ quotasOf: (tenant) => keys.quotasOf(tenant), usedBy: (tenant) => tenantUsage.usedBy(tenant), nowMs });
  const merge = openMerge({ members, apiKey, log });
  const webhooks = openGatewayWebhooks({ members, merge, apiKey, log });
  const volumes = openGatewayVolumes({ members, merge, relay, quotas });
  const secrets = openGatewaySecrets({ members, merge, relay, apiKey, log });
  const sandbox = async (input: { sandboxID: string }, context: Context) => handlers.getSandbox(input, context);
  const previews = openGatewayPreviews({ members, apiKey, domain: () => domain ?? "localhost", sandbox, log });
  const { send } = calls;
  const scaling = openScaling({
    members,
    queue,
    rules: { ...rules, target: settings.scale_target, minNodes: settings.scale_min_nodes },
    scaleInMs: settings.scale_in_seconds * 1000,
    metrics,
    nowMs,
  });
  let hasBeenUp = false;
  let isStopping = false;
  const spans = await openSpans({ server: "gateway", version: pages().version, log });
  const operations = { ...nodeOperations, ...nodesOperations, ...nodeControlOperations };
  const handlers = gatewayHandlers({
    members,
    lookups,
    arrivals,
    directory: () => directory,
    relay,
    isFixed: etcd.length === 0,
    storedOnly: new StoredOnly({ members, apiKey, log }),
    merge,
    keys,
    quotas,
    charged: openCharged(quotas, tenantUsage),
    webhooks,
    volumes,
    scaling: scaling.handler,
    secrets,
    previews,
    create: openCreate({
      ...{ members, lookups, relay, queue, rules, apiKey, send, volumes, secrets, nowMs },
      directory: () => directory,
      onPlaced: counted.placed,
    }),
    checkHealth() {
      if (isStopping) fail("SHUTTING_DOWN", "the gateway is stopping");
      hasBeenUp ||= members.up.length > 0;
      const known = members.all.map((member) => `${member.name}: ${member.reason}`).join("; ");
      const why = directory?.hasRead === false ? "etcd has not answered" : known === "" ? "etcd knows of none" : known;
      if (!hasBeenUp) fail("SERVER_UNREACHABLE", `no node has answered yet: ${why}`, { retryAfterSeconds: 1 });
    },
  });
  const webConsole = openConsole({
    ...pages(),
    kind: "gateway",
    settings: loaded.settings.console,
    apiKey,
    domains,
    operations,
    row: async (sandboxID) => await handlers.getSandbox({ sandboxID }, quietContext()),
    series: gatewaySeries,
    home,
    log,
    metrics,
  });
  const app = serve({
    operations,
    handlers,
    apiKey,
    keys,
    quotas,
    guard: openGatewayGuard(members),
    anyOrigin: true,
    servesMetrics: false,
    pages: pages(),
    log,
    metrics,
    spans,
    raw(scope) {
      events.routes(scope);
      fileRoutes(members)(scope);
      identityRoutes(members, nowMs)(scope);
      webConsole.routes(scope);
    },
  });
  app.server.keepAliveTimeout = KEEP_ALIVE_MS;
  app.server.requestTimeout = 0;
  const control = `\0svc-gateway-${process.pid}-${Date.now().toString(36)}`;
  await app.listen({ path: control });
  counted.watch(members, lookups, arrivals, queue, () => directory?.isEmptied === true);
  const metricsListener = await openMetricsListener(settings.metrics_listen, metrics);
  const proxy = await openGatewayProxy({
    targets,
    listen: settings.listen,
    control,
    members,
    lookups,
    arrivals,
    previews: previews.names,
    fateOf: (member, sandboxID) => fateOf({ members, directory: () => directory }, member, sandboxID),
    apiKey,
    keys,
    brands: settings.brand,
    domains: certificates?.domains ?? domains,
    certificates,
    log,
    metrics,
  });
  const url = urlOf(settings.listen.host, proxy.address.port, certificates === undefined ? "http" : "https");
  const address = dialledAt(certificates === undefined ? settings.listen.host : proxy.local.host, proxy.local.port);
  domain ??= `${certificates?.domains[0] ?? "localhost"}:${proxy.address.port}`;
  webConsole.start(app, address, proxy.address.port);
  for (const node of settings.nodes) members.add({ url: node });
  directory = etcd.length === 0 ? undefined : openEtcdDirectory({ endpoints: etcd, name, certificates: peerCertificates, members, log });
  const ticking = setInterval(() => {
    queue.expire();
    queue.release(1);
  }, QUEUE_MS);

  const stateFile = join(home, "node.json");
  const self = { role: "gateway", pid: process.pid, startTicks: startTicks(process.pid), url, address, authorityFile: certificates?.authorityFile };
  const kept = keepStateFile(stateFile, `${JSON.stringify({ ...self, metricsURL: metricsListener.url, apiKeySource: source })}\n`, () =>
    log.error({ stateFile }, "the disk is full: the file with the gateway's address is written once there is room; the gateway serves meanwhile"),
  );
  log.info({ url, metricsURL: metricsListener.url, home, nodes: settings.nodes, etcd, apiKeySource: source, config: loaded.configPath }, "ready");
  ready("gateway", url);

  return untilStopped(log, [
    { name: "state file", close: async () => kept.remove() },
    { name: "console", close: async () => webConsole.close() },
    {
      name: "proxy",
      close() {
        isStopping = true;
        clearInterval(ticking);
        scaling.close();
        queue.close();
        events.end();
        webhooks.close();
        secrets.close();
        previews.close();
        return proxy.close();
      },
    },
    { name: "control plane", close: () => app.close() },
    { name: "spans", close: async () => spans?.close() },
    { name: "nodes", close: async () => members.close() },
    { name: "calls", close: async () => calls.close() },
    { name: "named keys", close: async () => keys.close() },
    {
      name: "etcd",
      async close() {
        await Promise.all([directory?.close(), keyEtcd?.close()]);
      },
    },
    { name: "certificates", close: async () => peerCertificates?.close() },
    { name: "metrics", close: metricsListener.close },
  ]);
}

function pages() {
  return {
    title: "svc gateway",
    version,
    about:
      "One address in front of the nodes of a deployment, compatible with the E2B API. Unmodified E2B clients use this URL as E2B_API_URL and E2B_SANDBOX_URL.",
    next: [
      ["./svc nodes list", "lists the nodes"],
      ["./svc start base -d", "starts a sandbox on one of them and prints its id"],
      ["./svc list", "lists the sandboxes of all nodes"],
    ] as const,
    guides: ["docs/deploy.md", "docs/sandboxes.md", "docs/operations.md"],
  };
}

if (process.argv[1] === import.meta.filename) process.exit(await main(process.argv.slice(2)));
