// Joins the cluster: opens the store's client at the configured master, and mounts the service's own memory.
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Failure, fail } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { PeerCertificates } from "@svc/kit/peers/peer-certificates.ts";
import type { ColdTierOptions } from "../client/cold/cold-devices.ts";
import type { DiskEvent } from "../client/disk/disk-parts.ts";
import type { SessionEvent } from "../client/session/session-options.ts";
import { StoreClient } from "../client/store-client.ts";
import { ownMaster } from "../rpc/own-servers.ts";
import { beginIdentity, type Identity } from "./identity.ts";
import { Mounts } from "./mounts.ts";
import { Objects } from "./objects.ts";
import type { ServiceSettings } from "./settings.ts";

/** The time for one address of this machine's own master before it is looked up again, since the master may have moved. */
const OWN_TRY_MS = 3000;
const LOOK_MS = 200;
const DEFAULT_BRAND = "svc";
const P2P = "P2PHANDSHAKE";

export type LocalDisk = { state(): StoreClient["disk"]; unmount(graceMs: number): Promise<void> };

export type Member = {
  /** HOST:PORT, or etcd://... */
  readonly master: string;
  readonly mounts: Mounts;
  readonly objects: Objects;
  readonly disk: LocalDisk;
  /** Returns "" while the master knows this service. */
  trouble(): string;
  mountedBytes(): number;
  segmentCount(): number;
  engineMetrics(): string;
  close(): Promise<void>;
};

export type JoinOptions = {
  readonly settings: ServiceSettings;
  readonly token: string | undefined;
  readonly home: string;
  readonly certificates: PeerCertificates | undefined;
  readonly log: Log;
};

/** @throws SERVER_UNREACHABLE when no master answers within `max_wait_seconds`, and the failures of starting the engine. */
export async function joinCluster({ settings, token, home, certificates, log }: JoinOptions): Promise<Member> {
  let mounts: Mounts | undefined;
  const identity = beginIdentity(home, settings.stable_id, log);
  const { client, master } = await openClient({ settings, token, home, certificates, identity }, (event, at) => {
    if (event.type === "unnamed")
      log.warn({ stableID: identity.stableID }, "another service that started later has this stable id: this one continues under its client id");
    else if (event.type === "away") log.warn({ err: event.failure, master: at }, "the master does not answer; retrying");
    else if (event.type === "joined") log.info({ master: at, again: event.again }, "the master knows this service");
    else if (event.type === "restored") log.warn({ master: at, objects: event.objects }, "the master had lost its log; this service reported its objects");
    else if (event.type === "unmounted") mounts?.forget(event.segmentID);
    else if (event.type === "disk-mounted") log.info({ folder: event.folder, files: event.files }, "the master knows this service's disk");
    else
      log.warn(
        { folder: event.folder, err: event.failure },
        event.type === "disk-paused" ? "the disk accepts no objects for a while" : "the disk is withdrawn",
      );
  });
  const { session } = client;
  try {
    await checkBrands(client, settings, log);
  } catch (error) {
    await client.close();
    throw error;
  }
  mounts = new Mounts({ session, protocol: settings.protocol, limits: settings.registration_limits, maxRegistrationBytes: settings.max_mr_size });
  try {
    await mounts.mountOwn(settings.global_segment_size);
  } catch (error) {
    await client.close();
    throw error;
  }
  return {
    master,
    mounts,
    objects: new Objects(client),
    disk: { state: () => client.disk, unmount: (graceMs) => client.unmountDisk(graceMs) },
    trouble: () => (session.isJoined ? "" : `the master at ${master} does not answer`),
    mountedBytes: () => session.segments.all().reduce((total, { segment, region }) => total + (region === undefined ? 0 : Number(segment.sizeBytes)), 0),
    segmentCount: () => session.segments.all().length,
    engineMetrics: () => client.transferMetrics(),
    close: () => client.close(),
  };
}

/** Keys in a metadata server begin with the brand: clients of another brand do not find this service there, and their puts to it fail. */
async function checkBrands({ session }: StoreClient, { brand, metadata_server: metadata }: ServiceSettings, log: Log): Promise<void> {
  if (metadata === P2P) return;
  const brands = await session.call("GetBrands").catch((error: unknown) => {
    // Masters of an earlier release do not have this call, and some masters do not allow it.
    if (error instanceof Failure && ["INVALID_REQUEST", "ACCESS_DENIED"].includes(error.name)) return undefined;
    throw error;
  });
  const others = brands?.ok === true ? brands.value.filter((each) => each !== brand) : [];
  if (others.length === 0) return;
  const reason = `the master also answers to ${others.join(", ")}, and clients of that brand look in ${metadata} for records that begin with their own word`;
  if (brand === DEFAULT_BRAND)
    fail(
      "SETTING_INVALID",
      `setting store_service.brand: expected a word that this service's clients look for, got the default "${brand}": ${reason}, so that their puts to this service would fail (-800). ` +
        `Give --brand ${others[0]} where the clients are of that brand, leave ${others.join(",")} out of the master's --brand where they are not, or use ${P2P} for all`,
    );
  log.warn({ brand, others }, `${reason}: they do not find this service`);
}

type OnEvent = (event: SessionEvent | DiskEvent, master: string) => void;

async function openClient(
  { settings, token, home, certificates, identity }: Omit<JoinOptions, "log"> & { readonly identity: Identity },
  onEvent: OnEvent,
): Promise<{ client: StoreClient; master: string }> {
  const endMs = performance.now() + settings.max_wait_seconds * 1000;
  const given = settings.master_server_address;
  while (true) {
    const leftMs = Math.max(0, endMs - performance.now());
    const master = given === "" ? ownMaster(home)?.rpc : given;
    if (master === undefined) {
      if (leftMs === 0)
        fail("SERVER_UNREACHABLE", `no master of this machine within ${settings.max_wait_seconds} s: none has written ${join(home, "store/master.json")}`);
      await sleep(LOOK_MS);
      continue;
    }
    try {
      const client = await StoreClient.open({
        ...optionsOf(settings),
        ...identity,
        coldTier: coldTierOf(settings, join(home, "store-service")),
        token,
        certificates,
        master,
        joinMs: given === "" ? Math.min(OWN_TRY_MS, leftMs) : leftMs,
        onEvent: (event) => onEvent(event, master),
      });
      return { client, master };
    } catch (error) {
      if (given !== "" || leftMs <= OWN_TRY_MS || !(error instanceof Failure) || !["SERVER_UNREACHABLE", "TIMED_OUT"].includes(error.name)) throw error;
    }
  }
}

const coldTierOf = (settings: ServiceSettings, folder: string): ColdTierOptions => ({
  file: join(folder, "cold-devices.json"),
  allowed: settings.cold_tier_folders,
  offloads: ({ trigger: "asked", evict: "evicted", put: "stored" } as const)[settings.cold_tier_offload],
  s3: {
    endpoint: settings.cold_tier_s3_endpoint,
    region: settings.cold_tier_s3_region,
    pathStyle: settings.cold_tier_s3_path_style,
    credentialsFile: settings.cold_tier_s3_credentials_file,
    env: process.env,
    allowed: settings.cold_tier_s3_prefixes,
    cacheFolder: join(folder, "cold-cache"),
    cacheBytes: settings.cold_tier_s3_cache_size,
  },
});

const optionsOf = (settings: ServiceSettings) => ({
  localHostname: settings.local_hostname,
  metadata: settings.metadata_server,
  protocol: settings.protocol,
  deviceName: settings.device_name,
  brand: settings.brand,
  clusterID: settings.cluster_id,
  localBufferBytes: settings.local_buffer_size,
  tenant: settings.tenant_id,
  enableClientHttpServer: settings.enable_client_http_server,
  clientHttpPort: settings.client_http_port,
  clientHttpHost: settings.host,
  ...(settings.nof_path === "" ? {} : { nof: { file: settings.nof_path, bytes: settings.nof_size } }),
  ...(settings.enable_ssd_offload ? { ssdFolder: settings.ssd_offload_path, ssdBytes: settings.ssd_offload_size, ssdSyncs: settings.ssd_offload_sync } : {}),
});
