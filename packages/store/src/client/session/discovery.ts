// Finds the master: a fixed address, or the leader of a cluster of masters, followed in etcd.
import { Failure, fail } from "@svc/contract/failures.ts";
import { openEtcd } from "@svc/kit/etcd/client.ts";
import type { KeyValue } from "@svc/kit/etcd/wire.ts";
import { clusterPrefix, knownFrom, leadershipKey, viewKey } from "../../ha/leadership.ts";
import { type MasterAddress, masterAddress } from "./address.ts";

const SCHEME = "etcd://";
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

export type DiscoveryOptions = { readonly brand: string; readonly clusterID?: string | undefined };

/** @throws INVALID_REQUEST for anything but HOST:PORT and etcd://HOST:PORT[;HOST:PORT...]. */
export function openDiscovery(text: string, { brand, clusterID = DEFAULT_CLUSTER }: DiscoveryOptions): Discovery {
  if (!text.startsWith(SCHEME)) {
    const address = masterAddress(text);
    return { candidates: () => [address], find: async () => address, isMoving: false, onMove: () => undefined, close: async () => undefined };
  }
  return followed(etcdMembers(text), brand, clusterID);
}

/** Returns the addresses in `etcd://HOST:PORT[;HOST:PORT...]`. */
export function etcdMembers(text: string): string[] {
  const members = text
    .slice(SCHEME.length)
    .split(/[;,]/)
    .map((each) => each.trim());
  if (!members.every((each) => /^[^\s;,/]+:\d{1,5}$/.test(each)))
    fail("INVALID_REQUEST", `the master's address: expected ${SCHEME}HOST:PORT[;HOST:PORT...], got ${JSON.stringify(text)}`);
  return members.map((each) => `http://${each}`);
}

export const isEtcdAddress = (text: string): boolean => text.startsWith(SCHEME);

function followed(endpoints: readonly string[], brand: string, clusterID: string): Discovery {
  const etcd = openEtcd({ endpoints });
  const listeners: (() => void)[] = [];
  const [view, record] = [viewKey(brand, clusterID), leadershipKey(brand, clusterID)];
  let leader: string | undefined;
  let standbys: readonly string[] = [];
  let said: () => void = () => undefined;
  const first = new Promise<void>((resolve) => {
    said = resolve;
  });

  function see(key: string, entry: KeyValue | undefined): void {
    if (key === record) standbys = known(entry);
    if (key !== view || entry?.value === leader) return;
    leader = entry?.value;
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
  return {
    candidates: () => [leader, ...standbys].flatMap((each) => (each === undefined ? [] : masterAddress(each))),
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
      return masterAddress(leader);
    },
    isMoving: true,
    onMove: (listener) => void listeners.push(listener),
    async close() {
      await watch.close();
      await etcd.close();
    },
  };
}

/** Returns the RPC addresses of the standbys that may take over. */
function known(entry: KeyValue | undefined): string[] {
  try {
    return knownFrom(entry)?.leadership.inSync.map(({ rpc }) => rpc) ?? [];
  } catch {
    // A cluster of another implementation has no record that we can read; its leader's address is enough.
    return [];
  }
}
