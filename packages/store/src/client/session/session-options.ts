// What a membership is opened with, and what it tells its owner.
import type { Failure } from "@svc/contract/failures.ts";
import type { TransferEngine } from "@svc/transfer/engine.ts";
import type { TaskExecutor } from "./task-loop.ts";

/** Grace periods of unmounts: a timer's longest time is 24.8 days. */
export const MAX_GRACE_MS = 7 * 86_400_000;

export type SessionEvent =
  /** The master knows this client and its memory; `again` after it did not. */
  | { readonly type: "joined"; readonly again: boolean }
  | { readonly type: "away"; readonly failure: Failure }
  /** The master had lost its log: it knows so many of the objects in this client's memory again. */
  | { readonly type: "restored"; readonly objects: number }
  /** A later start bears this client's stable id: its client id is its name now. */
  | { readonly type: "unnamed" }
  | { readonly type: "unmounted"; readonly segmentID: string };

export type SessionOptions = {
  /** HOST:PORT of the master's RPC, or etcd://HOST:PORT[;...] of a cluster of masters. */
  readonly master: string;
  /** Of that cluster; "svc_cluster" by default. */
  readonly clusterID?: string | undefined;
  /** Initialized, with its transports installed; it is the caller's, and outlives the session. */
  readonly engine: TransferEngine;
  readonly brand?: string;
  /** A key of the master's, where it asks for one. */
  readonly token?: string | undefined;
  /** The name by which others know this client across its restarts, and a number that grows with each; without it the client's id is its name. */
  readonly identity?: { readonly stableID: string; readonly epoch: bigint } | undefined;
  /** Equal on clients of one host: what prefers local memory compares it. */
  readonly hostID?: string;
  /** Connections for calls, beside the one that membership has for itself. */
  readonly connections?: number;
  readonly callMs?: number;
  readonly pingMs?: number;
  /** How long to wait for a master that does not answer yet. */
  readonly joinMs?: number;
  /** Carries out copies and moves that the master assigns; without it none are fetched. */
  readonly execute?: TaskExecutor;
  /** Answers what administrators of the cold tier ask of this client. */
  readonly obey?: (command: string) => Promise<string>;
  /** Memory in which this client remembers what lies in its segments, for a master that loses its log; 0 (the default) remembers nothing. */
  readonly remembersBytes?: number;
  readonly onEvent?: (event: SessionEvent) => void;
};
