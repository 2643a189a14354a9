// The leader of a cluster of masters as recorded in etcd: one record, changed by transactions, and the key that Mooncake's clients read.

import { isAbsent, type Transaction } from "@svc/kit/etcd/transaction.ts";
import type { KeyValue } from "@svc/kit/etcd/wire.ts";
import { z } from "zod";

const name = z.string().min(1).max(256);
export const member = z.object({
  /** The id of the folder with its log: a member whose folder was lost is a new member. */
  id: name,
  name,
  /** HOST:PORT of its RPC, the URL of its HTTP, and HOST:PORT of its replication stream. */
  rpc: name,
  http: name,
  stream: name,
  /** HOST:PORT where all three are reached by TLS; absent: it has no certificate of the deployment. */
  tls: name.optional(),
});
export type Member = z.output<typeof member>;

const record = z.object({
  /** Increases by one with each leader. */
  epoch: z.number().int().min(1).max(Number.MAX_SAFE_INTEGER),
  leader: member,
  /** The standbys that must have a record before the leader acknowledges it; each of them may take over. */
  inSync: z.array(member).max(16),
});
export type Leadership = z.output<typeof record>;

/** The revision of a record that etcd lost. */
export const LOST = 0n;

/** The record and the revision at which it was written; `undefined` if no master has led yet. */
export type Known = { readonly leadership: Leadership; readonly revision: bigint };

export const clusterPrefix = (brand: string, clusterID: string) => `${brand}-store/${clusterID}/`;
export const viewKey = (brand: string, clusterID: string) => `${clusterPrefix(brand, clusterID)}master_view`;
export const leadershipKey = (brand: string, clusterID: string) => `${clusterPrefix(brand, clusterID)}leadership`;

/** @throws for a record of another implementation: leadership is never guessed. */
export function knownFrom(entry: KeyValue | undefined): Known | undefined {
  return entry === undefined ? undefined : { leadership: record.parse(JSON.parse(entry.value)), revision: entry.modRevision };
}

export type Keys = { readonly brands: readonly string[]; readonly clusterID: string };

/** Succeeds only if the record is unchanged. It also writes a new leader's address to the key that Mooncake's clients read. */
export function changeOf({ brands, clusterID }: Keys, known: Known | undefined, next: Leadership): Transaction {
  const key = leadershipKey(brands[0] as string, clusterID);
  const moves = known?.leadership.epoch !== next.epoch || known.revision === LOST;
  return {
    if: [known === undefined ? isAbsent(key) : { key, modRevision: known.revision }],
    do: [{ put: key, value: JSON.stringify(next) }, ...(moves ? brands.map((brand) => ({ put: viewKey(brand, clusterID), value: next.leader.rpc })) : [])],
    else: [{ get: key }],
  };
}
