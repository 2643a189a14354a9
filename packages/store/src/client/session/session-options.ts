// The options of a membership, and its events.

import type { Failure } from "@svc/contract/failures.ts";
import type { PeerCertificates } from "@svc/kit/peers/peer-certificates.ts";
import type { TransferEngine } from "@svc/transfer/engine.ts";
import type { TaskExecutor } from "./task-loop.ts";

/** The maximum grace period of an unmount; timers are limited to 24.8 days. */
export const MAX_GRACE_MS = 7 * 86_400_000;

export type SessionEvent =
  /** The master knows this client and its memory; `again` is set if it had forgotten them. */
  | { readonly type: "joined"; readonly again: boolean }
  | { readonly type: "away"; readonly failure: Failure }
  /** The master had lost its log, and that number of objects in this client's memory is restored. */
  | { readonly type: "restored"; readonly objects: number }
  /** A later start uses the same stable id, so this client is known by its client id only. */
  | { readonly type: "unnamed" }
  | { readonly type: "unmounted"; readonly segmentID: string };

export type SessionOptions = {
  /** HOST:PORT of the master's RPC, or etcd://HOST:PORT[;...] of a cluster of masters. */
  readonly master: string;
  /** The id of that cluster; "svc_cluster" by default. */
  readonly clusterID?: string | undefined;
  /** The certificate of this process, for masters that are reached by TLS and for etcd. */
  readonly certificates?: PeerCertificates | undefined;
  /** An initialized engine with its transports installed; the caller owns it, and it outlives the session. */
  readonly engine: TransferEngine;
  readonly brand?: string;
  /** The access key for a master that requires one. */
  readonly token?: string | undefined;
  /** The name of this client across restarts, and a number that increases with each; without it, the client's id is its name. */
  readonly identity?: { readonly stableID: string; readonly epoch: bigint } | undefined;
  /** Equal for all clients on one host; it is compared where local memory is preferred. */
  readonly hostID?: string;
  /** The number of connections for calls, in addition to the one for membership. */
  readonly connections?: number;
  readonly callMs?: number;
  readonly pingMs?: number;
  /** The limit of waiting for a master that does not answer yet. */
  readonly joinMs?: number;
  /** Executes the copies and moves that the master assigns; without it none are fetched. */
  readonly execute?: TaskExecutor;
  /** Answers the commands of the cold tier's administrator to this client. */
  readonly obey?: (command: string) => Promise<string>;
  /** Memory in which this client remembers the objects in its segments, for a master that lost its log; 0 (the default) remembers nothing. */
  readonly remembersBytes?: number;
  readonly onEvent?: (event: SessionEvent) => void;
};
