// Who leads a cluster of masters, as etcd holds it: one record, written by one transaction each time, and the key that clients of the field read.

import { isAbsent, type Transaction } from "@svc/kit/etcd/transaction.ts";
import type { KeyValue } from "@svc/kit/etcd/wire.ts";
import { z } from "zod";

const name = z.string().min(1).max(256);
export const member = z.object({
  /** Of the folder that holds its log: a member whose folder was lost is another one. */
  id: name,
  name,
  /** HOST:PORT of its RPC, URL of its HTTP, HOST:PORT where standbys follow it. */
  rpc: name,
  http: name,
  stream: name,
});
export type Member = z.output<typeof member>;

const record = z.object({
  /** One more with each leader. */
  epoch: z.number().int().min(1).max(Number.MAX_SAFE_INTEGER),
  leader: member,
  /** The standbys without which the leader acknowledges nothing: each of them may take over. */
  inSync: z.array(member).max(16),
});
export type Leadership = z.output<typeof record>;

/** The revision of a record that is not there. */
export const LOST = 0n;

/** The record with the revision at which it was written; `undefined` where nobody has led yet. */
export type Known = { readonly leadership: Leadership; readonly revision: bigint };

export const clusterPrefix = (brand: string, clusterID: string) => `${brand}-store/${clusterID}/`;
export const viewKey = (brand: string, clusterID: string) => `${clusterPrefix(brand, clusterID)}master_view`;
export const leadershipKey = (brand: string, clusterID: string) => `${clusterPrefix(brand, clusterID)}leadership`;

/** @throws where the record is not one of ours: nobody leads by guesses. */
export function knownFrom(entry: KeyValue | undefined): Known | undefined {
  return entry === undefined ? undefined : { leadership: record.parse(JSON.parse(entry.value)), revision: entry.modRevision };
}

export type Keys = { readonly brands: readonly string[]; readonly clusterID: string };

/** Succeeds only where the record is still the one that is known. A new leader's address stands where clients of the field look. */
export function changeOf({ brands, clusterID }: Keys, known: Known | undefined, next: Leadership): Transaction {
  const key = leadershipKey(brands[0] as string, clusterID);
  const moves = known?.leadership.epoch !== next.epoch || known.revision === LOST;
  return {
    if: [known === undefined ? isAbsent(key) : { key, modRevision: known.revision }],
    do: [{ put: key, value: JSON.stringify(next) }, ...(moves ? brands.map((brand) => ({ put: viewKey(brand, clusterID), value: next.leader.rpc })) : [])],
    else: [{ get: key }],
  };
}
