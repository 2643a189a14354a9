// Builds the parts of a client, top to bottom; what was opened is closed again where a later part fails.
import { Failure } from "@svc/contract/failures.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import { displayVersion } from "../rpc/revision.ts";
import { scopePrefix } from "../rpc/scope.ts";
import { toWire } from "../rpc/text.ts";
import { HANDSHAKE_VERSION } from "../rpc/version.ts";
import { type ClientHttp, openClientHttp } from "./client-http.ts";
import { ClientMetrics } from "./client-metrics.ts";
import type { ClientOptions } from "./client-options.ts";
import { ColdDevices } from "./cold/cold-devices.ts";
import { OwnDisk } from "./disk/own-disk.ts";
import { openExecutor } from "./executor.ts";
import { Extents } from "./extents.ts";
import { LocalMemory } from "./memory.ts";
import { nativeClient } from "./native.ts";
import { NofFile } from "./nof-file.ts";
import type { ClientParts } from "./parts.ts";
import { Avoided, Damaged, Places } from "./places.ts";
import { Runner } from "./runner.ts";
import { Session } from "./session/session.ts";
import { checkTenant } from "./session/tenant.ts";
import { openEngine } from "./session/transfer-engine.ts";
import { openShared } from "./shared-folder.ts";
import { SyncCalls } from "./sync-calls.ts";

const MIB = 1 << 20;
const LOCAL_BUFFER_BYTES = 16 * MIB;
const KNOWN_PLACES = 65_536;
const REMEMBERS_BYTES = 128 * MIB;
const TIMEOUT_MS = 10_000;
const CALL_MS = 5000;
const HTTP_PORT = 9300;

/** @throws SERVER_UNREACHABLE, HOST_UNSUITABLE (another version, no native part), UNAUTHENTICATED, INVALID_REQUEST, TRANSPORT_UNAVAILABLE. */
export async function openClientParts(options: ClientOptions): Promise<ClientParts> {
  nativeClient();
  const { brand = "svc", tenant = "", fingerprint = "", timeoutMs = TIMEOUT_MS, localHostname = "127.0.0.1", protocol = "tcp" } = options;
  await using undo = new AsyncDisposableStack();
  const engine = undo.adopt(
    await openEngine({
      localHostname,
      metadata: options.metadata ?? "P2PHANDSHAKE",
      protocol,
      brand,
      ...(options.deviceName === undefined ? {} : { deviceName: options.deviceName }),
      ...(options.engineSettings === undefined ? {} : { settings: options.engineSettings }),
    }),
    (each) => each.freeEngine(),
  );
  if (options.sharesMemory === false) await engine.uninstallTransport("shm");
  const memory = await LocalMemory.open(engine, options.localBufferBytes ?? LOCAL_BUFFER_BYTES);
  const metrics = new ClientMetrics();
  let execute: ReturnType<typeof openExecutor> | undefined;
  let cold: ColdDevices | undefined;
  const epoch = options.epoch ?? Date.now();
  const obey = (command: string) => cold?.obey(command) ?? Promise.reject(new Failure("SERVER_UNREACHABLE", "this client is starting: try again"));
  const session = undo.use(
    await Session.open({
      master: options.master,
      engine,
      brand,
      callMs: CALL_MS,
      token: options.token,
      remembersBytes: options.remembersBytes ?? REMEMBERS_BYTES,
      clusterID: options.clusterID,
      certificates: options.certificates,
      ...(options.stableID === undefined ? {} : { identity: { stableID: toWire(options.stableID), epoch: BigInt(epoch) } }),
      ...(options.coldTier === undefined ? {} : { obey }),
      ...(options.hostID === undefined ? {} : { hostID: options.hostID }),
      ...(options.joinMs === undefined ? {} : { joinMs: options.joinMs }),
      ...(options.executesTasks === false ? {} : { execute: async (tasks, signal) => execute?.(tasks, signal) ?? tasks.map(() => new Error("not ready yet")) }),
      ...(options.onEvent === undefined ? {} : { onEvent: options.onEvent }),
    }),
  );
  await checkTenant(session.calls, tenant);
  const { clientID, hostID } = session;
  const syncCalls = new SyncCalls(session.discovery, brand, CALL_MS, options.token);
  const runner = new Runner(engine, session.calls, syncCalls);
  execute = openExecutor({ clientID, runner, memory, onWrongBytes: () => metrics.count("wrongBytes") });
  const [places, avoided, damaged] = [new Places(options.knownPlaces ?? KNOWN_PLACES), new Avoided(), new Damaged()];
  const shared = { tenant: toWire(tenant), fingerprint: toWire(fingerprint), places, avoided, timeoutMs };
  const extents = new Extents({ clientID, tenant: shared.tenant, isAhead: options.leasesAhead ?? true });
  if (options.usesSharedFolder !== false) runner.shared = await openShared(session.calls);
  const files = { clientID, tenant: shared.tenant, shared: runner.shared, count: (what: "filed" | "unfiled") => metrics.count(what) };
  const putParts = { ...shared, clientID, extents, files, onFailedMove: () => metrics.count("unreached") };
  const getParts = {
    ...shared,
    shared: runner.shared,
    ownEndpoint: engine.getServerName(),
    isVerified: options.verifies ?? true,
    count: (what: Parameters<typeof metrics.count>[0]) => metrics.count(what),
    onDamaged: (key: string) => damaged.add(key),
    onRead: (key: string) => damaged.forget(key),
  };
  if ((options.segmentBytes ?? 0) > 0) await session.mountNew(options.segmentBytes as number, { protocol });
  let nof: NofFile | undefined;
  if (options.nof !== undefined) {
    nof = undo.adopt(await NofFile.open(options.nof), (each) => each.close());
    await session.mountFile(nof);
  }
  let disk: OwnDisk | undefined;
  if (options.ssdFolder !== undefined) {
    const { ssdFolder: folder, ssdBytes: capacityBytes = 0, ssdSyncs: syncs = false, onEvent } = options;
    disk = await OwnDisk.open({ session, engine, runner, memory, folder, capacityBytes, syncs, ...(onEvent === undefined ? {} : { onEvent }) });
  }
  if (options.coldTier !== undefined) {
    const { stableID = clientID, ssdSyncs: syncs = false, onEvent } = options;
    const coldParts = { session, engine, runner, memory, syncs, owner: { stableID, epoch }, ...(onEvent === undefined ? {} : { onEvent }) };
    cold = await ColdDevices.open(options.coldTier, coldParts);
  }
  const http = options.enableClientHttpServer === true ? await serve(options, { extents, metrics, session }) : undefined;
  undo.move();
  const shown = { putParts, getParts, metrics, damaged, hostID, scope: toWire(scopePrefix(options)) };
  return { engine, runner, memory, ...shown, session, tenant: shared.tenant, extents, syncCalls, nof, disk, cold, http };
}

function serve(
  { clientHttpHost = "127.0.0.1", clientHttpPort = HTTP_PORT }: ClientOptions,
  { extents, metrics: own, session }: Pick<ClientParts, "extents" | "metrics" | "session">,
): Promise<ClientHttp> {
  const metrics = openMetrics();
  metrics.gauge("svc_store_client_leased_extents", "Extents leased ahead and not used yet", [], (gauge) => gauge.set(extents.count));
  return openClientHttp(clientHttpHost, clientHttpPort, {
    version: HANDSHAKE_VERSION,
    displayVersion: displayVersion(),
    metrics: own.exposedBy(metrics),
    isHealthy: () => session.isJoined,
  });
}
