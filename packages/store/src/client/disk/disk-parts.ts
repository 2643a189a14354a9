// What a disk of a client's is opened with, what it says of itself, and what it tells.
import type { Failure } from "@svc/contract/failures.ts";
import type { TransferEngine } from "@svc/transfer/engine.ts";
import type { LocalMemory } from "../memory.ts";
import type { Runner } from "../runner.ts";
import type { Session } from "../session/session.ts";
import type { FileStore } from "./file-store.ts";

/** Of a file system, where nothing says what objects may take there. */
export const DEFAULT_SHARE = 0.9;

export type DiskEvent =
  | { readonly type: "disk-mounted"; readonly folder: string; readonly files: number }
  /** It takes no objects for a while; what lies there is read on. */
  | { readonly type: "disk-paused"; readonly folder: string; readonly failure: Failure }
  | { readonly type: "disk-away"; readonly folder: string; readonly failure: Failure };

export type DiskParts = {
  readonly session: Session;
  readonly engine: TransferEngine;
  readonly runner: Runner;
  readonly memory: LocalMemory;
  readonly folder: string;
  /** Where its files are and the master's name for it, where that is not the folder, from which they are then only read. */
  readonly files?: { readonly store: FileStore; readonly id: string };
  /** What objects may take; 0 is nine tenths of the file system. */
  readonly capacityBytes: number;
  /** Among the disks of this client. */
  readonly label?: number;
  readonly syncs?: boolean;
  /** A device of the cold tier: filled when that is asked for, emptied when that is asked for, and never in doubt of what it has. */
  readonly cold?: ColdParts;
  onEvent?(event: DiskEvent): void;
};

export type ColdParts = {
  /** Sets a file aside that no object claims, or whose bytes are wrong. */
  quarantine(file: number): Promise<void>;
  /** Whether the master is told what lies there already. */
  readonly announces: boolean;
  isSchedulable: boolean;
  /** What goes there unasked, of which tenant ("" for all). */
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
