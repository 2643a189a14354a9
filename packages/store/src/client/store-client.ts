// The client of the cache store: stores and reads objects in the memory of all holders, and offers memory of its own.
import { setTimeout as sleep } from "node:timers/promises";
import { Failure } from "@svc/contract/failures.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import type { Memory } from "@svc/transfer/memory.ts";
import { displayVersion } from "../rpc/revision.ts";
import { scopePrefix } from "../rpc/scope.ts";
import { toWire } from "../rpc/text.ts";
import { HANDSHAKE_VERSION } from "../rpc/version.ts";
import { type ClientHttp, openClientHttp } from "./client-http.ts";
import { ClientKeys } from "./client-keys.ts";
import { ClientMetrics } from "./client-metrics.ts";
import type { ClientOptions } from "./client-options.ts";
import { ColdDevices } from "./cold/cold-devices.ts";
import type { DiskState } from "./disk/disk-parts.ts";
import { OwnDisk } from "./disk/own-disk.ts";
import { openExecutor } from "./executor.ts";
import { Extents, giveBack } from "./extents.ts";
import { LocalMemory } from "./memory.ts";
import { nativeClient } from "./native.ts";
import { NofFile } from "./nof-file.ts";
import { Avoided, Damaged, Places } from "./places.ts";
import { Runner } from "./runner.ts";
import type { MountOptions } from "./session/segments.ts";
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
const TEND_MS = 1000;

export class StoreClient extends ClientKeys implements AsyncDisposable {
  #extents!: Extents;
  #syncCalls!: SyncCalls;
  #http: ClientHttp | undefined;
  #disk: OwnDisk | undefined;
  #cold: ColdDevices | undefined;
  #nof: NofFile | undefined;
  #timer: NodeJS.Timeout | undefined;
  #closing: Promise<void> | undefined;

  /** @throws SERVER_UNREACHABLE, HOST_UNSUITABLE (another version, no native part), UNAUTHENTICATED, INVALID_REQUEST, TRANSPORT_UNAVAILABLE. */
  static async open(options: ClientOptions): Promise<StoreClient> {
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
        ...(options.stableID === undefined ? {} : { identity: { stableID: toWire(options.stableID), epoch: BigInt(epoch) } }),
        ...(options.coldTier === undefined ? {} : { obey }),
        ...(options.hostID === undefined ? {} : { hostID: options.hostID }),
        ...(options.joinMs === undefined ? {} : { joinMs: options.joinMs }),
        ...(options.executesTasks === false
          ? {}
          : { execute: async (tasks, signal) => execute?.(tasks, signal) ?? tasks.map(() => new Error("not ready yet")) }),
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
    const client = new StoreClient(
      { engine, runner, memory, putParts, getParts, metrics, damaged, hostID, scope: toWire(scopePrefix(options)) },
      session,
      shared.tenant,
    );
    client.#extents = extents;
    client.#syncCalls = syncCalls;
    if ((options.segmentBytes ?? 0) > 0) await session.mountNew(options.segmentBytes as number, { protocol });
    if (options.nof !== undefined) {
      const file = undo.adopt(await NofFile.open(options.nof), (each) => each.close());
      await session.mountFile(file);
      client.#nof = file;
    }
    if (options.ssdFolder !== undefined) {
      const { ssdFolder: folder, ssdBytes: capacityBytes = 0, ssdSyncs: syncs = false, onEvent } = options;
      client.#disk = await OwnDisk.open({ session, engine, runner, memory, folder, capacityBytes, syncs, ...(onEvent === undefined ? {} : { onEvent }) });
    }
    if (options.coldTier !== undefined) {
      const { stableID = clientID, ssdSyncs: syncs = false, onEvent } = options;
      const parts = { session, engine, runner, memory, syncs, owner: { stableID, epoch }, ...(onEvent === undefined ? {} : { onEvent }) };
      cold = await ColdDevices.open(options.coldTier, parts);
      client.#cold = cold;
    }
    if (options.enableClientHttpServer === true) client.#http = await client.#serve(options);
    client.#timer = setInterval(() => void client.#tend(), TEND_MS).unref();
    undo.move();
    return client;
  }

  get clientID(): string {
    return this.session.clientID;
  }
  /** The name of this client's segments. */
  get segmentName(): string {
    return this.parts.engine.getServerName();
  }
  /** Returns the metrics of its transfer engine as Prometheus text. */
  transferMetrics(): string {
    return this.parts.engine.metrics();
  }
  /** The port of its own HTTP endpoint. */
  get httpPort(): number | undefined {
    return this.#http?.port;
  }

  /**
   * Registers memory, which is then transferred without a copy until it is unregistered; it must not be resized or detached.
   * @throws MEMORY_OVERLAPS, INVALID_REQUEST.
   */
  registerBuffer(memory: Memory): Promise<void> {
    return this.parts.memory.register(memory);
  }
  /** @throws MEMORY_NOT_REGISTERED; TRANSFER_BUSY while a transfer uses it. */
  unregisterBuffer(memory: Memory): Promise<void> {
    return this.parts.memory.unregister(memory);
  }

  /** Offers memory to the cluster. Returns the ids of its segments. */
  async mount(sizeBytes: number, options: MountOptions = {}): Promise<string[]> {
    return (await this.session.mountNew(sizeBytes, options)).map(({ segment }) => segment.id);
  }
  /** Unmounts a segment; with a grace period its objects stay readable until then. @throws STORE_KEY_NOT_FOUND, SERVER_UNREACHABLE. */
  unmount(segmentID: string, graceMs = 0): Promise<void> {
    return this.session.unmount(segmentID, graceMs);
  }

  /** The name of this client's NOF segment for `preferredNofSegments`; undefined where it has none. */
  get nofSegment(): string | undefined {
    return this.#nof?.segmentName;
  }

  /** The state of this client's own disk; undefined where it has none. */
  get disk(): DiskState | undefined {
    return this.#disk?.state;
  }
  /**
   * Unmounts this client's disk for good: the master no longer names it, so readers miss at once, and running reads have `graceMs` to end. Its files
   * stay for the next process that opens the folder. Does nothing without a disk.
   */
  async unmountDisk(graceMs = 0): Promise<void> {
    if (this.#disk === undefined) return;
    await this.#disk.stop();
    if (graceMs > 0) await sleep(graceMs);
  }

  /** Returns true if the master knows this client and answers. */
  async health(): Promise<boolean> {
    if (!this.session.isJoined) return false;
    return this.session.call("ServiceReady").then(
      (answer) => answer.ok,
      () => false,
    );
  }

  /** Returns leased extents and unmounts its memory: objects there are gone unless they have replicas elsewhere. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(): Promise<void> {
    clearInterval(this.#timer);
    await this.#http?.close();
    await this.#disk?.close();
    await this.#cold?.close();
    await this.parts.runner.run(giveBack(this.clientID, this.#extents.takeAll(), false));
    await this.session.close();
    await this.#nof?.close();
    this.#syncCalls.close();
    this.parts.runner.shared?.close();
    await this.parts.memory.close();
    await this.parts.engine.freeEngine();
  }

  /** Returns extents that were not needed before their lease ends. */
  async #tend(): Promise<void> {
    await this.parts.runner.run(giveBack(this.clientID, this.#extents.takeOld(), false));
  }

  #serve({ clientHttpHost = "127.0.0.1", clientHttpPort = HTTP_PORT }: ClientOptions): Promise<ClientHttp> {
    const metrics = openMetrics();
    metrics.gauge("svc_store_client_leased_extents", "Extents leased ahead and not used yet", [], (gauge) => gauge.set(this.#extents.count));
    return openClientHttp(clientHttpHost, clientHttpPort, {
      version: HANDSHAKE_VERSION,
      displayVersion: displayVersion(),
      metrics: this.parts.metrics.exposedBy(metrics),
      isHealthy: () => this.session.isJoined,
    });
  }
}
