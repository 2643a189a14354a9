// The options, the state and the events of a client's disk.
import type { Failure } from "@svc/contract/failures.ts";
import type { TransferEngine } from "@svc/transfer/engine.ts";
import type { LocalMemory } from "../memory.ts";
import type { Runner } from "../runner.ts";
import type { Session } from "../session/session.ts";
import type { FileStore } from "./file-store.ts";

/** The default capacity as a share of the file system. */
export const DEFAULT_SHARE = 0.9;

export type DiskEvent =
  | { readonly type: "disk-mounted"; readonly folder: string; readonly files: number }
  /** The disk accepts no objects for a while; its files remain readable. */
  | { readonly type: "disk-paused"; readonly folder: string; readonly failure: Failure }
  | { readonly type: "disk-away"; readonly folder: string; readonly failure: Failure };

export type DiskParts = {
  readonly session: Session;
  readonly engine: TransferEngine;
  readonly runner: Runner;
  readonly memory: LocalMemory;
  readonly folder: string;
  /** The store of the files and the master's id of the disk, for files that lie elsewhere; the folder is then only read from. */
  readonly files?: { readonly store: FileStore; readonly id: string };
  /** The capacity for objects; 0 is nine tenths of the file system. */
  readonly capacityBytes: number;
  /** Distinguishes the disks of this client. */
  readonly label?: number;
  readonly syncs?: boolean;
  /** Marks a device of the cold tier: it is filled and emptied on command only, and never evicts by itself. */
  readonly cold?: ColdParts;
  onEvent?(event: DiskEvent): void;
};

export type ColdParts = {
  /** Quarantines a file that no object refers to, or whose bytes are damaged. */
  quarantine(file: number): Promise<void>;
  /** True if files that exist already are announced to the master. */
  readonly announces: boolean;
  isSchedulable: boolean;
  /** The objects that are written there without a command, and their tenant ("" for all). */
  readonly fills?: { readonly what: "evicted" | "stored"; readonly tenant: string };
};

export type DiskState = {
  readonly files: number;
  readonly usedBytes: number;
  readonly capacityBytes: number;
  readonly isMounted: boolean;
  readonly trouble: string;
  readonly reservedBytes: number;
  readonly isAnnounced: boolean;
};
