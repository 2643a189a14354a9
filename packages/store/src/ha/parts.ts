// What a master's leading and its standing by share: who it is, the record, the core, and a way to begin anew.
import type { Log } from "@svc/kit/log.ts";
import type { Member } from "./leadership.ts";
import type { ProcessIdentity } from "./process-identity.ts";
import type { Record } from "./record.ts";

/** What the master's core does for one of several masters. */
export interface ReplicationCore {
  /** One of several masters, before it starts: when a silent leader or standby is given up, and whether answers wait for standbys. */
  configureReplication(times: { silenceMs: number; standbyMs: number; leaseMs: number; resumeBytes: number }, sync: boolean): void;
  /**
   * Begins without the lead; a "standing" event follows, once the log was read where it is. `isNeeded`: what cannot be read stops the
   * start, since nobody else has it for certain.
   */
  startStandby(recovers: boolean, isNeeded: boolean): void;
  /** A numeric address. "followed" (1: it goes on from what it has, 0: it takes in the whole state), then "followLost" with the reason. */
  follow(host: string, port: number, epoch: number, hello: string): void;
  /** "recovered" follows. Changes are answered `holdMs` later; `view` is what pings show. */
  lead(epoch: number, holdMs: number, view: number): void;
  /** It gets what it missed, or the whole state, then each change; "caughtUp" once it has all, "peerLost" at its end. */
  admitPeer(peer: number, hello: string, mayResume: boolean): void;
  refusePeer(peer: number, why: string): void;
  /** Answers wait no more for a peer that is lost. */
  forgetPeer(peer: number): void;
  /** While true nothing is answered: the lead goes elsewhere. */
  retire(retires: boolean): void;
  peerHasAll(peer: number): boolean;
  handOver(peer: number, epoch: number): void;
  /** etcd confirmed the lead that long ago. */
  contacted(ageMs: number): void;
  /** JSON. */
  replication(): string;
}

export type HaParts = {
  readonly native: ReplicationCore;
  readonly record: Record;
  readonly self: Member;
  readonly process: ProcessIdentity;
  readonly clusterID: string;
  /** The SSD tier: where the leader has it, its standbys must. */
  readonly offload: boolean;
  readonly nof: boolean;
  /** The folder that clients share, "" for none. */
  readonly folder: string;
  /** Nothing was ever logged here. */
  readonly isEmpty: boolean;
  /** Shown to a leader that asks for keys. */
  readonly token: string | undefined;
  readonly log: Log;
  /** Whether this key may follow: everything that is stored is named on the stream. */
  mayFollow(token: string | undefined): boolean;
  restart(reason: string): never;
};

/** A leader that heard from nobody for so long answers nothing, and a new one acknowledges nothing for as long. */
export const LEASE_MS = 500;
export const RETRY_MS = 100;
/** Before a master without data begins a cluster: a leader whose record etcd lost writes it again sooner. */
export const BEGIN_MS = 500;
