// Where a device of the cold tier has its files, whatever its kind: looked at, opened by its owner, and its quarantine reported.
import type { ColdParts, DiskParts } from "../disk/disk-parts.ts";
import type { OwnDisk } from "../disk/own-disk.ts";
import type { ColdAnswers } from "./commands.ts";

/** Which start of whom serves which device. */
export type Label = { readonly deviceID: string; readonly tenant: string; readonly stableID: string; readonly epoch: number };

export type PlaceParts = Omit<DiskParts, "folder" | "capacityBytes" | "cold" | "files">;
/** `scans`: the master is told what lies there already. */
export type PlaceOptions = Omit<ColdParts, "quarantine" | "announces"> & { readonly scans: boolean };

export type Looked = { readonly files: number; readonly usedBytes: number };

export interface DevicePlace {
  /** For people. */
  readonly root: string;
  /** What it could serve. @throws INVALID_REQUEST where it cannot be used, STORE_CONFLICT where it is another's. */
  look(label: Label): Promise<Looked>;
  /** What objects may take there where the device's definition says nothing; null: as much as is paid for. */
  capacityBytes(): Promise<number | null>;
  /** @throws as `look`; SETTING_INVALID where another process of this host uses it. */
  open(label: Label, parts: PlaceParts, options: PlaceOptions): Promise<OpenPlace>;
  /** Files of objects that lie there, whoever serves them. */
  contents(): Promise<Looked>;
  /** A page of what was set aside, and how much it is in all. */
  quarantined(from: number): Promise<ColdAnswers["quarantine"]>;
}

export type OpenPlace = {
  readonly disk: OwnDisk;
  /** Whether it can be reached now. @throws what keeps it from that. */
  probe(): Promise<void>;
  schedule(isSchedulable: boolean): Promise<void>;
  close(): Promise<void>;
};
