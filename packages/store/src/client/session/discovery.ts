// Finds the master: a fixed address, or the leader of a cluster of masters, followed in etcd.
import { Failure, fail } from "@svc/contract/failures.ts";
import { openEtcd } from "@svc/kit/etcd/client.ts";
import type { KeyValue } from "@svc/kit/etcd/wire.ts";
import type { PeerCertificates } from "@svc/kit/peers/peer-certificates.ts";
import { PeerClient } from "@svc/kit/peers/peer-client.ts";
import { clusterPrefix, knownFrom, type Leadership, leadershipKey, viewKey } from "../../ha/leadership.ts";
import { alpn } from "../../rpc/alpn.ts";
import { type MasterAddress, masterAddress } from "./address.ts";

const SCHEME = "etcd://";
const TLS_SCHEME = "tls://";
/** The time limit for etcd's first answer about the leader. */
const FIRST_MS = 5_000;
export const DEFAULT_CLUSTER = "svc_cluster";

export interface Discovery {
  /** Returns the masters that may lead, the most likely one first; for callers that cannot wait. */
  candidates(): readonly MasterAddress[];
  /** @throws SERVER_UNREACHABLE where no master leads, or etcd does not answer. */
  find(): Promise<MasterAddress>;
  /** True if another master may lead later. */
  readonly isMoving: boolean;
  onMove(listener: () => void): void;
  close(): Promise<void>;
}

export type DiscoveryOptions = {
  readonly brand: string;
  readonly clusterID?: string | undefined;
  /** With these, masters that are found in etcd are reached by TLS only, and etcd at `https://` gets the certificate. */
  readonly certificates?: PeerCertificates | undefined;
};

/** @throws INVALID_REQUEST for anything but HOST:PORT, tls://HOST:PORT and etcd://HOST:PORT[;HOST:PORT...]. */
export function openDiscovery(text: string, { brand, clusterID = DEFAULT_CLUSTER, certificates }: DiscoveryOptions): Discovery {
  const peers = certificates && new PeerClient(certificates, "master", alpn.rpc);
  if (!text.startsWith(SCHEME)) {
    const isSecure = text.startsWith(TLS_SCHEME);
    if (isSecure && peers === undefined)
      fail(
        "INVALID_REQUEST",
        `the master at ${text} expects TLS, and this process has no certificate to show there: give it --peer-certs DIR (svc certs issue)`,
      );
    const plain = masterAddress(isSecure ? text.slice(TLS_SCHEME.length) : text);
    const address = isSecure && peers !== undefined ? { ...plain, peers } : plain;
    return { candidates: () => [address], find: async () => address, isMoving: false, onMove: () => undefined, close: async () => undefined };
  }
  return followed({ endpoints: etcdMembers(text), brand, clusterID, certificates, peers });
}

/** Returns the addresses in `etcd://HOST:PORT[;HOST:PORT...]`. */
export function etcdMembers(text: string): string[] {
  const members = text
    .slice(SCHEME.length)
    .split(/[;,]/)
    .map((each) => each.trim());
  if (!members.every((each) => /^(https?:\/\/)?[^\s;,/]+:\d{1,5}$/.test(each)))
    fail("INVALID_REQUEST", `the master's address: expected ${SCHEME}HOST:PORT[;HOST:PORT...], got ${JSON.stringify(text)}`);
  return members.map((each) => (each.includes("://") ? each : `http://${each}`));
}

export const isEtcdAddress = (text: string): boolean => text.startsWith(SCHEME);

type Followed = Required<Pick<DiscoveryOptions, "brand" | "clusterID" | "certificates">> & {
  readonly endpoints: readonly string[];
  readonly peers: PeerClient | undefined;
};

function followed({ endpoints, brand, clusterID = DEFAULT_CLUSTER, certificates, peers }: Followed): Discovery {
  const etcd = openEtcd({ endpoints, certificates });
  const listeners: (() => void)[] = [];
  const [view, record] = [viewKey(brand, clusterID), leadershipKey(brand, clusterID)];
  /** The address of the leader; "" for one that has no port of TLS, where this client needs one. */
  let leader: string | undefined;
  let standbys: readonly string[] = [];
  let said: () => void = () => undefined;
  const first = new Promise<void>((resolve) => {
    said = resolve;
  });

  function see(key: string, entry: KeyValue | undefined): void {
    const written = key === record ? leadershipIn(entry) : undefined;
    if (key === record) standbys = (written?.inSync ?? []).flatMap(({ rpc, tls }) => (peers === undefined ? rpc : (tls ?? [])));
    if (key !== (peers === undefined ? view : record)) return;
    const found = peers === undefined ? entry?.value : written && (written.leader.tls ?? "");
    if (found === leader) return;
    leader = found;
    for (const listener of listeners) listener();
  }
  const watch = etcd.watch(clusterPrefix(brand, clusterID), {
    onAll(entries) {
      for (const key of [record, view]) {
        see(
          key,
          entries.find((each) => each.key === key),
        );
      }
      said();
    },
    onEvents(events) {
      for (const event of events) see(event.key, event.type === "put" ? event.entry : undefined);
    },
  });
  const addressOf = (text: string): MasterAddress => (peers === undefined ? masterAddress(text) : { ...masterAddress(text), peers });
  return {
    candidates: () => [leader, ...standbys].flatMap((each) => (each === undefined || each === "" ? [] : addressOf(each))),
    async find() {
      const late = Symbol();
      let timer: NodeJS.Timeout | undefined;
      const bound = new Promise<symbol>((resolve) => {
        timer = setTimeout(() => resolve(late), FIRST_MS);
      });
      const outcome = await Promise.race([first, bound]);
      clearTimeout(timer);
      if (outcome === late)
        throw new Failure("SERVER_UNREACHABLE", `etcd at ${endpoints.join(", ")} did not report the leader of cluster ${clusterID} within ${FIRST_MS} ms`);
      if (leader === undefined)
        throw new Failure("SERVER_UNREACHABLE", `no master leads cluster ${clusterID} of brand ${brand}: etcd at ${endpoints.join(", ")} has no key ${view}`);
      if (leader === "")
        fail(
          "SERVER_UNREACHABLE",
          `the leading master of cluster ${clusterID} has no certificate of the deployment, and this client has one (${certificates?.described}): give the master --peer-certs DIR, or start this client without`,
        );
      return addressOf(leader);
    },
    isMoving: true,
    onMove: (listener) => void listeners.push(listener),
    async close() {
      await watch.close();
      await etcd.close();
    },
  };
}

/** A cluster of another implementation has no record that we can read; its leader's address is enough. */
function leadershipIn(entry: KeyValue | undefined): Leadership | undefined {
  try {
    return knownFrom(entry)?.leadership;
  } catch {
    return undefined;
  }
}
