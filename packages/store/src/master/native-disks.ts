// The part of the native seam that is about the disks of clients.
import type { Disk, EndedFile, FailedOrder, FileOf, Order, StartedFile, WantedFile } from "../rpc/shapes.ts";

/** Whose bytes a reader found wrong, or not there. */
export type DoubtedFile = {
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
  /** These are for owners of the field, whose one disk has its client's id. */
  fieldOrders(clientID: string, enabled: boolean, most: number): Order[] | number;
  fieldPromotions(clientID: string): Order[] | number;
  keepFieldFiles(clientID: string, files: readonly { tenant: string; key: string; sizeBytes: bigint }[], endpoint: string): number;
  dropFieldFile(clientID: string, tenant: string, key: string): number;
  setCapacity(clientID: string, bytes: bigint): number;
  /** 1 once after everything was removed, else 0, or an error code. */
  takeWipe(clientID: string): number;
  /** [code, JSON of the range to write] */
  promoteStart(clientID: string, tenant: string, key: string, sizeBytes: bigint, preferred: readonly string[]): [number, string];
  promoteEnd(clientID: string, tenant: string, key: string, isWhole: boolean): number;
  doubt(tenant: string, key: string, replicaID: bigint): number;
  /** JSON, a list. */
  disks(): string;
  /** JSON: the folder that clients share; "" where there is none. */
  sharedFolder(): string;
  /** For each object its file there, or an error code. */
  startFiles(clientID: string, tenant: string, wanted: readonly WantedFile[]): (StartedFile | number)[];
  endFiles(clientID: string, tenant: string, files: readonly EndedFile[]): number[];
  evictFiles(tenant: string, keys: readonly string[]): number[];
  /** What the files there may take in all. */
  setFolderQuota(bytes: bigint): void;
  /** [name, number, ...] of files that are to be removed */
  sweepable(most: number): (string | bigint)[];
  swept(files: readonly bigint[]): void;
  doubtedFiles(most: number): DoubtedFile[];
  /** Damaged, or gone. */
  dropFile(tenant: string, key: string, file: bigint, isDamaged: boolean): number;
  /** With `empty`, only where no object lies there. */
  unmountDisk(clientID: string, diskID: string, empty: boolean): number;
  /** [code, objects that wait for the device now, whether the whole table was looked at]; tenant "" for those of all. */
  queueCold(clientID: string, diskID: string, tenant: string, most: number, records: number): [number, number, boolean];
  /** Which objects go to the device by themselves: 0 none, 1 those about to be evicted, 2 all that are stored; tenant "" for those of all. */
  fillCold(clientID: string, diskID: string, fills: number, tenant: string): number;
  /** Gives up the file of an object that readable memory has too. */
  releaseCold(diskID: string, tenant: string, key: string, file: bigint): number;
  /** [next cursor, or 0; (tenant, key, bytes, file, whether memory has it too) of each object on the disk...] */
  filesOn(diskID: string, cursor: number, records: number): [number, ...(string | bigint | boolean)[]];
}
