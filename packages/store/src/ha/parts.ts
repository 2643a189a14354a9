// The parts that leading and standing by share: this member, the record, the core, and the restart.
import type { Log } from "@svc/kit/log.ts";
import type { Member } from "./leadership.ts";
import type { ProcessIdentity } from "./process-identity.ts";
import type { Record } from "./record.ts";

/** The replication interface of the master's core. */
export interface ReplicationCore {
  /** Configures one of several masters before it starts: when a silent leader or standby is given up, and whether answers wait for standbys. */
  configureReplication(times: { silenceMs: number; standbyMs: number; leaseMs: number; resumeBytes: number }, sync: boolean): void;
  /**
   * Starts as a standby; a "standing" event follows once the log is read. `isNeeded`: an
   * unreadable log stops the start, since no other master is certain to have its records.
   */
  startStandby(recovers: boolean, isNeeded: boolean): void;
  /**
   * Follows a leader at a numeric address. A "followed" event says whether it resumes
   * (1) or receives the whole state (0); "followLost" has the reason of the end.
   */
  follow(host: string, port: number, epoch: number, hello: string): void;
  /** Starts to lead; a "recovered" event follows. Changes are answered only after `holdMs`; pings show `view`. */
  lead(epoch: number, holdMs: number, view: number): void;
  /** Sends the peer what it lacks, or the whole state, then each change; "caughtUp" follows once it has everything, and "peerLost" at its end. */
  admitPeer(peer: number, hello: string, mayResume: boolean): void;
  refusePeer(peer: number, why: string): void;
  /** Answers no longer wait for a lost peer. */
  forgetPeer(peer: number): void;
  /** While true, nothing is answered, since leadership is being handed over. */
  retire(retires: boolean): void;
  peerHasAll(peer: number): boolean;
  handOver(peer: number, epoch: number): void;
  /** Reports that etcd confirmed this leader `ageMs` ago. */
  contacted(ageMs: number): void;
  /** Returns JSON. */
  replication(): string;
}

export type HaParts = {
  readonly native: ReplicationCore;
  readonly record: Record;
  readonly self: Member;
  readonly process: ProcessIdentity;
  readonly clusterID: string;
  /** The SSD tier, which must be on at the standbys of a leader that has it. */
  readonly offload: boolean;
  readonly nof: boolean;
  /** The shared folder; "" for none. */
  readonly folder: string;
  /** True if there was never a log here. */
  readonly isEmpty: boolean;
  /** The token for a leader that requires one. */
  readonly token: string | undefined;
  readonly log: Log;
  /** Returns true if this token allows following, which discloses the names of everything stored. */
  mayFollow(token: string | undefined): boolean;
  restart(reason: string): never;
  /** Returns the numeric address at which the leader's replication stream is reached. @throws an Error that says why it cannot be. */
  reach(leader: Member): Promise<{ readonly host: string; readonly port: number }>;
};

/** A leader without contact for this long stops answering, and a new one acknowledges nothing for as long. */
export const LEASE_MS = 500;
export const RETRY_MS = 100;
/** The delay before a master without data founds a cluster; a leader whose record etcd lost rewrites it sooner. */
export const BEGIN_MS = 500;
