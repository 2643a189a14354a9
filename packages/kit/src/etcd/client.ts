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

/** Each @throws ETCD_UNAVAILABLE where no member answers in time, ETCD_REFUSED where one says no. */
export interface Etcd {
  readonly endpoints: readonly string[];
  get(key: string): Promise<KeyValue | undefined>;
  /** All keys that begin with `prefix`, as they are at one revision. */
  list(prefix: string): Promise<Listed>;
  /**
   * The revision that it was written at. It is sent to a second member where the first may have written it: only for keys that nobody
   * else writes; else `transact`.
   */
  put(key: string, value: string, leaseID?: string): Promise<bigint>;
  /** Whether it was there. */
  delete(key: string): Promise<boolean>;
  /**
   * Sent once: where its outcome is not known, the failure's `details.outcome` is "unknown". Values that name the writer let it
   * read who won.
   */
  transact(transaction: Transaction): Promise<Transacted>;
  /** A lease that is kept alive until it is released; `onLost` once, when it may be over. */
  lease(ttlSeconds: number, onLost: (reason: string) => void): Promise<Lease>;
  /** All keys that begin with `prefix`, then each change of them, in order and without a gap. */
  watch(prefix: string, options: WatchOptions): Watch;
  /** Ends watches and kept leases without releasing them. */
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
      // Later pages are read at the revision of the first.
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
      // First: it ends the calls that watches wait for.
      endpoints.close();
      await Promise.all([...open].map((each) => each.close()));
    },
  };
}
