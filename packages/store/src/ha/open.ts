// Builds a master's part in a cluster of masters from its settings.

import { openEtcd } from "@svc/kit/etcd/client.ts";
import type { Log } from "@svc/kit/log.ts";
import type { PeerCertificates } from "@svc/kit/peers/peer-certificates.ts";
import type { AccessKeys } from "../access/keys.ts";
import { defaultName, folderIdentity, hasLog } from "./folder-identity.ts";
import { Ha } from "./ha.ts";
import type { Member } from "./leadership.ts";
import { LEASE_MS, type ReplicationCore } from "./parts.ts";
import { ownIdentity } from "./process-identity.ts";
import { reachBy } from "./reach.ts";
import { Record } from "./record.ts";
import { restart } from "./restart.ts";

/** An etcd member that does not answer within this is replaced by another one; a change waits no longer than clients do. */
const ATTEMPT_MS = 500;
const CALL_MS = 2_000;

export type HaSettings = {
  readonly etcd_endpoints: string;
  readonly cluster_id: string;
  readonly member_name: string;
  readonly brand: readonly string[];
  readonly rpc_address: string;
  readonly advertised_host: string;
  readonly plain_clients: boolean;
  readonly replication: "sync" | "async";
  readonly takeover_after_ms: number;
  readonly standby_timeout_ms: number;
  readonly resume_log_bytes: number;
  readonly enable_offload: boolean;
  readonly enable_nof: boolean;
  readonly root_fs_dir: string;
};

export type OpenHa = {
  readonly native: ReplicationCore;
  readonly settings: HaSettings;
  readonly home: string;
  readonly keys: AccessKeys | undefined;
  readonly token: string | undefined;
  /** Shown to etcd at `https://` URLs, and to other masters. */
  readonly certificates: PeerCertificates | undefined;
  readonly log: Log;
  /** The bound ports. */
  readonly ports: { readonly rpc: number; readonly http: number; readonly stream: number; readonly tls: number | undefined };
};

/** Parses `HOST:PORT[;…]` as Mooncake's masters and clients write it; each may have a scheme. */
export const etcdUrls = (text: string): string[] =>
  text
    .split(/[;,]/)
    .map((each) => each.trim())
    .filter((each) => each !== "")
    .map((each) => (/^https?:\/\//.test(each) ? each : `http://${each}`));

/** Returns the host that others dial. */
export function advertisedHost({ advertised_host, rpc_address }: HaSettings): string {
  const host = advertised_host === "" ? rpc_address : advertised_host;
  return host.includes(":") ? `[${host}]` : host;
}

/** Must be called before the core starts. */
export function configureReplication(native: ReplicationCore, settings: HaSettings): void {
  const times = { silenceMs: settings.takeover_after_ms, standbyMs: settings.standby_timeout_ms, leaseMs: LEASE_MS, resumeBytes: settings.resume_log_bytes };
  native.configureReplication(times, settings.replication === "sync");
}

/** Where other machines need TLS, a plain caller finds the port that refuses it with the reason. */
function addressesOf(host: string, { rpc, http, stream, tls }: OpenHa["ports"], isPlainOpen: boolean): Omit<Member, "id" | "name"> {
  if (tls === undefined) return { rpc: `${host}:${rpc}`, http: `http://${host}:${http}`, stream: `${host}:${stream}` };
  const secure = `${host}:${tls}`;
  if (!isPlainOpen) return { rpc: secure, http: `https://${secure}`, stream: secure, tls: secure };
  return { rpc: `${host}:${rpc}`, http: `http://${host}:${http}`, stream: `${host}:${stream}`, tls: secure };
}

export function openHa({ native, settings, home, keys, token, certificates, log, ports }: OpenHa): { ha: Ha; close(): Promise<void> } {
  const etcd = openEtcd({ endpoints: etcdUrls(settings.etcd_endpoints), attemptMs: ATTEMPT_MS, callMs: CALL_MS, certificates });
  const id = folderIdentity(home);
  const host = advertisedHost(settings);
  const ha = new Ha({
    native,
    record: new Record(etcd, { brands: settings.brand, clusterID: settings.cluster_id }),
    self: {
      id,
      name: settings.member_name === "" ? defaultName(id) : settings.member_name,
      ...addressesOf(host, ports, settings.plain_clients),
    },
    process: ownIdentity(),
    clusterID: settings.cluster_id,
    offload: settings.enable_offload,
    nof: settings.enable_nof,
    folder: settings.root_fs_dir,
    isEmpty: !hasLog(home),
    token,
    log,
    mayFollow(shown) {
      const key = keys?.find(shown);
      return keys === undefined || (key !== undefined && key.tenant === undefined);
    },
    restart: (reason) => restart(log, reason),
    reach: reachBy({ certificates, mayBePlain: settings.plain_clients, log }),
  });
  return {
    ha,
    async close() {
      await ha.close();
      await etcd.close();
    },
  };
}
