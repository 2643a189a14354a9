// The native interface for clients' disks.
import type { ColdFile, Disk, EndedFile, FailedOrder, FileOf, Order, StartedFile, WantedFile } from "../rpc/shapes.ts";

/** A file whose bytes a reader found wrong or missing. */
export type ReportedFile = {
  readonly tenant: string;
  readonly key: string;
  readonly name: string;
  readonly file: bigint;
  readonly sizeBytes: number;
  readonly checksum: bigint | undefined;
};

export interface NativeDisks {
  mountDisk(clientID: string, disk: Disk): number;
  unmountDisks(clientID: string): number;
  dropFiles(clientID: string, diskID: string, files: readonly FileOf[], damaged: boolean): number;
  failOffloads(clientID: string, diskID: string, failed: readonly FailedOrder[]): number;
  /** The following methods serve Mooncake's clients, whose single disk has the client's id. */
  mooncakeOrders(clientID: string, enabled: boolean, most: number): Order[] | number;
  mooncakePromotions(clientID: string): Order[] | number;
  keepMooncakeFiles(clientID: string, files: readonly { tenant: string; key: string; sizeBytes: bigint }[], endpoint: string): number;
  dropMooncakeFile(clientID: string, tenant: string, key: string): number;
  setCapacity(clientID: string, bytes: bigint): number;
  /** Returns 1 once after everything was removed, else 0, or an error code. */
  takeWipe(clientID: string): number;
  /** Returns the range to write as JSON. */
  promoteStart(clientID: string, tenant: string, key: string, sizeBytes: bigint, preferred: readonly string[]): { code: number; target: string };
  promoteEnd(clientID: string, tenant: string, key: string, isWhole: boolean): number;
  reportWrongBytes(tenant: string, key: string, replicaID: bigint): number;
  /** Returns a list as JSON. */
  disks(): string;
  /** Returns the shared folder as JSON; "" if there is none. */
  sharedFolder(): string;
  /** Returns for each object its file there, or an error code. */
  startFiles(clientID: string, tenant: string, wanted: readonly WantedFile[]): (StartedFile | number)[];
  endFiles(clientID: string, tenant: string, files: readonly EndedFile[]): number[];
  evictFiles(tenant: string, keys: readonly string[]): number[];
  /** Sets the total capacity of the shared folder. */
  setFolderQuota(bytes: bigint): void;
  /** Returns files that are to be removed. */
  sweepable(most: number): { name: string; file: bigint }[];
  swept(files: readonly bigint[]): void;
  reportedFiles(most: number): ReportedFile[];
  /** Drops a file that is damaged or missing. */
  dropFile(tenant: string, key: string, file: bigint, isDamaged: boolean): number;
  /** With `empty`, unmounts only a disk without objects. */
  unmountDisk(clientID: string, diskID: string, empty: boolean): number;
  /** Returns how many objects wait for the device now, and whether the whole table was examined; tenant "" means all tenants. */
  queueCold(clientID: string, diskID: string, tenant: string, most: number, records: number): { code: number; queued: number; hasEnded: boolean };
  /** Sets the objects that are offloaded to the device automatically: 0 none, 1 those about to be evicted, 2 all stored ones; tenant "" means all tenants. */
  fillCold(clientID: string, diskID: string, fills: number, tenant: string): number;
  /** Drops the file of an object that also has a readable replica in memory. */
  releaseCold(diskID: string, tenant: string, key: string, file: bigint): number;
  /** Returns objects on the disk, and the next cursor, or 0. */
  filesOn(diskID: string, cursor: number, records: number): { next: number; files: ColdFile[] };
}
