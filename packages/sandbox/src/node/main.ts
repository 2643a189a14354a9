// The node: control plane, sandboxes and proxy of one machine, on one port.
import { once } from "node:events";
import { mkdirSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { Failure, fail, isDiskFull } from "@svc/contract/failures.ts";
import { nodeOperations } from "@svc/contract/sandbox.ts";
import { loadConfig } from "@svc/kit/config.ts";
import { closeParts, type Part, ready, untilStopped } from "@svc/kit/lifecycle.ts";
import { dialledAt, type ListenAddress, urlOf } from "@svc/kit/listen.ts";
import { type Log, openLog } from "@svc/kit/log.ts";
import { type Metrics, openMetrics } from "@svc/kit/metrics.ts";
import { serve } from "@svc/kit/serve.ts";
import { openProxy } from "../proxy/server.ts";
import { startTicksOf } from "../runtime/process.ts";
import { templateHandlers } from "../template/routes.ts";
import type { Templates } from "../template/templates.ts";
import { uploadRoutes } from "../template/upload-routes.ts";
import type { Node } from "./node.ts";
import { openNode } from "./open.ts";
import { endAll, recover } from "./recover.ts";
import { nodeHandlers } from "./routes.ts";
import { loadApiKey, type Sourced } from "./secrets.ts";
import { nodeSettings } from "./settings.ts";
import { wakeSandbox } from "./wake.ts";
import { openWatch } from "./watch.ts";

const KEEP_ALIVE_MS = 120_000;

const about = `runs sandboxes on this machine and serves the E2B API and the proxy on one port.
  --destroy-all                   ends every sandbox of this home, removes their parts, and exits`;

export async function main(argv: readonly string[]): Promise<number> {
  try {
    return await run(argv);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    process.stderr.write(`svc node: ${error.message}\n`);
    return 1;
  }
}

async function run(argv: readonly string[]): Promise<number> {
  const destroyAll = argv.includes("--destroy-all");
  const flagNames = { listen: "node.listen", brand: "node.brand", "log-level": "node.log_level", runtime: "sandbox.runtime" };
  const loaded = loadConfig({ server: "node", schema: nodeSettings, flagNames, argv: argv.filter((flag) => flag !== "--destroy-all"), about });
  if (loaded === "help") return 0;
  const { settings, home } = loaded;
  mkdirSync(join(home, "secrets"), { recursive: true, mode: 0o700 });
  const log = openLog("node", settings.node.log_level);
  const metrics = openMetrics();
  // Before anything is made on the host for a node that could not be reached.
  if (!destroyAll) await tryListening(settings.node.listen);
  const { node, templates, parts } = await openNode(home, settings, log, metrics, destroyAll ? "end" : "serve");
  if (destroyAll) {
    const left = await endAll(node);
    for (const sandboxID of left) process.stderr.write(`svc node: ${sandboxID} could not be ended; the log above says why\n`);
    return (await closeParts(log, parts(true))) || (left.length === 0 ? 0 : 1);
  }

  const apiKey = loadApiKey({ home, env: process.env });
  try {
    return await serveUntilStopped({ node, templates, log, metrics, apiKey, configPath: loaded.configPath, parts: parts(false) });
  } catch (error) {
    log.error({ err: error }, "the node cannot start");
    await closeParts(log, parts(false));
    throw error;
  }
}

type Opened = { node: Node; templates: Templates; log: Log; metrics: Metrics; apiKey: Sourced; configPath: string; parts: Part[] };

async function serveUntilStopped({ node, templates, log, metrics, apiKey, configPath, parts }: Opened): Promise<number> {
  const { settings, home } = node;
  const { observe } = node;
  const app = serve({
    operations: nodeOperations,
    handlers: { ...nodeHandlers(node), ...templateHandlers(templates), ...observe.handlers },
    apiKey: apiKey.secret,
    anyOrigin: true,
    log,
    metrics,
    raw(scope) {
      observe.streams.routes(scope);
      uploadRoutes(templates.shop.uploads)(scope);
    },
    audit: (entry) => observe.audit?.entry(entry),
  });
  app.server.keepAliveTimeout = KEEP_ALIVE_MS;
  app.server.requestTimeout = 0;
  // An abstract socket: no file that a kill could leave, and no sandbox is in this network namespace.
  const control = `\0svc-node-${process.pid}-${node.initKey.publicKeyBase64.slice(0, 8)}`;
  await app.listen({ path: control });

  const recovered = await recover(node);
  const { brand } = settings.node;
  const proxy = await openProxy({
    listen: settings.node.listen,
    control,
    directory: { ...node.registry, wake: (sandboxID, clientAddress) => wakeSandbox(node, sandboxID, clientAddress) },
    apiKey: apiKey.secret,
    brands: brand,
    domains: settings.proxy.domains,
    limits: { connections: settings.proxy.max_connections, connectionsPerPeer: settings.proxy.max_connections_per_address },
    log,
    metrics,
  }).catch((error: unknown) => cannotListen(settings.node.listen, error));
  node.proxy = proxy;
  node.domain = settings.proxy.domains[0] ?? `localhost:${proxy.address.port}`;
  const watch = openWatch(node);
  node.pool.start();
  observe.start();
  templates.start();
  const url = urlOf(settings.node.listen.host, proxy.address.port);
  const stateFile = join(home, "node.json");
  // The client of this machine sends the API key only to the process that this file names.
  const self = { pid: process.pid, startTicks: startTicksOf(process.pid), url, address: dialledAt(settings.node.listen.host, proxy.address.port) };
  const described = `${JSON.stringify({ ...self, runtime: node.runtime.name, apiKeySource: apiKey.source })}\n`;
  try {
    writeFileSync(`${stateFile}.new`, described);
    renameSync(`${stateFile}.new`, stateFile);
  } catch (error) {
    if (!isDiskFull(error)) throw error;
    rmSync(`${stateFile}.new`, { force: true });
    // A node that was killed has left its file, and the file its blocks.
    if (!overwrite(stateFile, described))
      log.error({ err: error, stateFile }, "where the node listens could not be written down: the disk is full; the node serves all the same");
  }
  log.info(
    { url, home, runtime: node.runtime.name, apiKeySource: apiKey.source, apiKeyGenerated: apiKey.generated, config: configPath, ...recovered },
    "ready",
  );
  ready("node", url);

  return untilStopped(log, [
    // First: from here on the port may be another's.
    { name: "state file", close: async () => rmSync(stateFile, { force: true }) },
    { name: "front door", close: () => stopTaking(node, () => proxy.close()) },
    { name: "control plane", close: () => app.close() },
    { name: "watch", close: watch.close },
    ...parts,
  ]);
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
  const why = code === "EADDRINUSE" ? "the port is in use" : code === "EACCES" ? "the port may not be opened by this user" : (error as Error).message;
  fail("SETTING_INVALID", `setting node.listen: cannot listen on ${host}:${port}: ${why}; stop the other server, or name another port by --listen HOST:PORT`, {
    cause: error,
  });
}

/** Sandboxes go on; only this process's doors close. */
async function stopTaking(node: Node, close: () => Promise<void>): Promise<void> {
  node.stopping = true;
  // Readers of events would hold the door open.
  node.observe.streams.end();
  await close();
}

if (process.argv[1] === import.meta.filename) process.exit(await main(process.argv.slice(2)));

function overwrite(path: string, text: string): boolean {
  try {
    writeFileSync(path, text.padEnd(statSync(path).size), { flag: "r+" });
    return true;
  } catch {
    return false;
  }
}
