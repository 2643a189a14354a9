// A client of etcd over its JSON gateway: keys, transactions, leases and watches, over all members of the cluster.
import { fail } from "@svc/contract/failures.ts";
import { z } from "zod";
import { openChecks } from "./checks.ts";
import { type EtcdOptions, openEndpoints } from "./endpoints.ts";
import { grantLease, type Lease } from "./lease.ts";
import { putRequest, type Transacted, type Transaction, transactionAnswer, transactionRequest } from "./transaction.ts";
import { openWatch, type Watch, type WatchOptions } from "./watch.ts";
import { behind, deleteAnswer, encode, header, type KeyValue, rangeAnswer } from "./wire.ts";

export type Listed = { readonly entries: readonly KeyValue[]; readonly revision: bigint };

/** Every method @throws ETCD_UNAVAILABLE if no member answers in time, ETCD_REFUSED if one refuses. */
export interface Etcd {
  readonly endpoints: readonly string[];
  get(key: string): Promise<KeyValue | undefined>;
  /** Lists all keys that begin with `prefix`, as of one revision. */
  list(prefix: string): Promise<Listed>;
  /**
   * Returns the revision of the write. A put may be sent to a second member after the first one has executed it, so use it only for keys
   * with a single writer; use `transact` for others.
   */
  put(key: string, value: string, leaseID?: string): Promise<bigint>;
  /** Returns whether the key existed. */
  delete(key: string): Promise<boolean>;
  /**
   * Sends the transaction once. If its outcome is unknown, the failure's `details.outcome` is "unknown"; a value that names its writer lets
   * the caller read who won.
   */
  transact(transaction: Transaction): Promise<Transacted>;
  /** Grants a lease and keeps it alive until it is released. `onLost` is called once, when the lease may have expired. */
  lease(ttlSeconds: number, onLost: (reason: string) => void): Promise<Lease>;
  /** Reports all keys that begin with `prefix`, then every change of them, in order and without gaps. */
  watch(prefix: string, options: WatchOptions): Watch;
  /** Stops watches and lease renewals without revoking the leases. */
  close(): Promise<void>;
}

const PAGE_KEYS = 1_000;
const MAX_KEYS = 200_000;
const CHECK_MS = 1_000;

const written = z.object({ header });

export function openEtcd(options: EtcdOptions): Etcd {
  const endpoints = openEndpoints(options);
  const checks = openChecks(endpoints, options.checkMs ?? CHECK_MS);
  const open = new Set<{ close(): Promise<void> }>();

  async function list(prefix: string): Promise<Listed> {
    const entries: KeyValue[] = [];
    let revision = 0n;
    let from = encode(prefix);
    for (;;) {
      // Later pages must be read at the revision of the first, or the list would mix two states.
      const page = await endpoints.call(
        "/v3/kv/range",
        { key: from, range_end: behind(prefix), limit: PAGE_KEYS, ...(revision === 0n ? {} : { revision: String(revision) }) },
        rangeAnswer,
      );
      if (revision === 0n) revision = page.header?.revision ?? 0n;
      entries.push(...page.kvs);
      const last = page.kvs.at(-1);
      if (!page.more || last === undefined) return { entries, revision };
      if (entries.length >= MAX_KEYS) fail("ETCD_REFUSED", `etcd holds more than ${MAX_KEYS} keys below ${prefix}; this reads no more at a time`);
      from = encode(`${last.key}\0`);
    }
  }

  return {
    endpoints: endpoints.urls,
    async get(key) {
      const { kvs } = await endpoints.call("/v3/kv/range", { key: encode(key) }, rangeAnswer);
      return kvs[0];
    },
    list,
    async put(key, value, leaseID) {
      const { header: at } = await endpoints.call("/v3/kv/put", putRequest(key, value, leaseID), written);
      return at.revision;
    },
    async delete(key) {
      return (await endpoints.call("/v3/kv/deleterange", { key: encode(key) }, deleteAnswer)).deleted > 0n;
    },
    transact: (transaction) => endpoints.call("/v3/kv/txn", transactionRequest(transaction), transactionAnswer, "once"),
    async lease(ttlSeconds, onLost) {
      const lease = await grantLease(endpoints, ttlSeconds, onLost, () => open.delete(lease));
      open.add(lease);
      return lease;
    },
    watch(prefix, asked) {
      const watch = openWatch({ endpoints, checks, list, prefix }, asked, () => open.delete(watch));
      open.add(watch);
      return watch;
    },
    async close() {
      // Endpoints close first, because this aborts the calls that the watches await.
      endpoints.close();
      await Promise.all([...open].map((each) => each.close()));
    },
  };
}
