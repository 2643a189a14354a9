// The store's REST service: offers memory to the cluster, mounts more on request, and serves objects over HTTP to programs without a client.
import { asFailure, Failure, fail } from "@svc/contract/failures.ts";
import { complained } from "@svc/kit/config.ts";
import { HttpServer } from "@svc/kit/http/server.ts";
import { ready, untilStopped } from "@svc/kit/lifecycle.ts";
import { urlOf } from "@svc/kit/listen.ts";
import { openLog } from "@svc/kit/log.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import { openPeerCertificates } from "@svc/kit/peers/peer-certificates.ts";
import { Denials } from "../access/denials.ts";
import { openKeys, tokenFrom } from "../access/keys.ts";
import { displayVersion } from "../rpc/revision.ts";
import { HANDSHAKE_VERSION } from "../rpc/version.ts";
import { joinCluster, type Member } from "./join.ts";
import { answerService, knownPath, refuseService, type ServiceParts } from "./routes.ts";
import { load, type ServiceSettings } from "./settings.ts";

export async function main(argv: readonly string[]): Promise<number> {
  try {
    return await run(argv);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    return complained("store service", error);
  }
}

async function run(argv: readonly string[]): Promise<number> {
  const unknown: string[] = [];
  const loaded = load(argv, (names) => unknown.push(...names));
  if (loaded === "help") return 0;
  const settings = loaded.settings.store_service;
  const log = openLog("store-service", settings.log_level);
  if (unknown.length > 0)
    log.warn({ names: unknown, file: loaded.configPath }, "the configuration file has names that this service does not know; they are ignored");
  const keys = openKeys({
    setting: "store_service.access_file",
    file: settings.access_file,
    variable: "SVC_STORE_SERVICE_TOKEN",
    env: process.env,
    warn: (message) => log.warn(message),
  });
  const token = tokenFrom("store_service.token_file", settings.token_file, process.env);
  const metrics = openMetrics();
  const certificates = openPeerCertificates(loaded.settings.peers, log, metrics);
  let member: Member | undefined;
  const parts: ServiceParts = {
    hasDisk: settings.enable_ssd_offload,
    mounts: () => member?.mounts,
    objects: () => member?.objects,
    disk: () => member?.disk,
    trouble: () =>
      member?.trouble() ?? `joining the master${settings.master_server_address === "" ? " of this machine" : ` at ${settings.master_server_address}`}`,
    tenant: settings.tenant_id,
    access: keys && { keys, denials: new Denials(log), tenant: settings.tenant_id },
    version: { version: HANDSHAKE_VERSION, display_version: displayVersion() },
    metrics: async () => `${await metrics.text()}\n${member?.engineMetrics() ?? ""}`,
  };
  metrics.gauge("svc_store_service_mounted_bytes", "Memory that this service has mounted", [], (gauge) => gauge.set(member?.mountedBytes() ?? 0));
  metrics.gauge("svc_store_service_segments", "Segments that this service has mounted", [], (gauge) => gauge.set(member?.segmentCount() ?? 0));
  metrics.gauge("svc_store_service_joined", "1 while the master knows this service", [], (gauge) => gauge.set(member?.trouble() === "" ? 1 : 0));
  metrics.gauge("svc_store_service_disk_used_bytes", "Bytes of objects on this service's disk", [], (gauge) => gauge.set(member?.disk.state()?.usedBytes ?? 0));
  metrics.gauge("svc_store_service_disk_capacity_bytes", "Bytes that objects may take there", [], (gauge) =>
    gauge.set(member?.disk.state()?.capacityBytes ?? 0),
  );
  metrics.gauge("svc_store_service_disk_mounted", "1 while the master sends readers to this service's disk", [], (gauge) =>
    gauge.set(member?.disk.state()?.isMounted ? 1 : 0),
  );
  const http = await listen(settings, parts, metrics.seconds("svc_store_service_http_seconds", "Time from an HTTP request to its answer", ["path", "code"]));
  try {
    member = await joinCluster({ settings, token, home: loaded.home, certificates, log });
  } catch (error) {
    await http.close();
    const failure = asFailure(error);
    const isElsewhere = failure.name === "SERVER_UNREACHABLE" || failure.name === "TIMED_OUT";
    const where = "; settings store_service.master_server_address, metadata_server, local_hostname and protocol say where it looks";
    return fail(failure.name, `${failure.message}${isElsewhere ? where : ""}`, { cause: error });
  }
  const joined = member;
  log.info({ url: http.url, master: joined.master, bytes: joined.mountedBytes(), protocol: settings.protocol, config: loaded.configPath }, "ready");
  ready("store service", http.url);
  return untilStopped(log, [
    { name: "http", close: http.close },
    { name: "membership", close: joined.close },
    { name: "certificates", close: async () => certificates?.close() },
  ]);
}

type Seconds = { observe(labels: { path: string; code: string }, seconds: number): void };

async function listen(settings: ServiceSettings, parts: ServiceParts, seconds: Seconds): Promise<{ url: string; close(): Promise<void> }> {
  const { host, port } = settings;
  const http = new HttpServer({
    maxBodyBytes: settings.max_body_bytes,
    bodySetting: "store_service.max_body_bytes",
    maxBufferedBytes: settings.max_buffered_bytes,
    maxConnections: settings.max_connections,
    answer: (request) => answerService(request, parts),
    refuse: refuseService,
    observe: (request, code, took) => seconds.observe({ path: request === undefined ? "none" : knownPath(request.target), code: String(code) }, took),
  });
  await http
    .listen({ host, port })
    .catch((error: Error) =>
      fail("SETTING_INVALID", `settings store_service.host and store_service.port: ${host}:${port}: ${error.message}`, { cause: error }),
    );
  return { url: urlOf(host, http.port), close: () => http.close() };
}

if (process.argv[1] === import.meta.filename) process.exitCode = await main(process.argv.slice(2));
