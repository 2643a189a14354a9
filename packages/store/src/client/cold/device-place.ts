// The location of a device's files, independent of its kind: inspected, opened by its owner, and its quarantine reported.
import type { ColdParts, DiskParts } from "../disk/disk-parts.ts";
import type { OwnDisk } from "../disk/own-disk.ts";
import type { ColdAnswers } from "./commands.ts";

/** The device, its owner and the owner's start that serves it. */
export type Label = { readonly deviceID: string; readonly tenant: string; readonly stableID: string; readonly epoch: number };

export type PlaceParts = Omit<DiskParts, "folder" | "capacityBytes" | "cold" | "files">;
/** With `scans`, the files that exist already are announced to the master. */
export type PlaceOptions = Omit<ColdParts, "quarantine" | "announces"> & { readonly scans: boolean };

export type Looked = { readonly files: number; readonly usedBytes: number };

export interface DevicePlace {
  /** The location as shown to people. */
  readonly root: string;
  /** Reports what the device could serve. @throws INVALID_REQUEST where it cannot be used, STORE_CONFLICT where it has another owner. */
  look(label: Label): Promise<Looked>;
  /** Returns the default capacity for objects; null means unlimited. */
  capacityBytes(): Promise<number | null>;
  /** Opens the device for use. @throws as `look`; SETTING_INVALID if another process of this host uses the device. */
  open(label: Label, parts: PlaceParts, options: PlaceOptions): Promise<OpenPlace>;
  /** Counts the objects' files there, independent of the process that serves them. */
  contents(): Promise<Looked>;
  /** Returns a page of the quarantine, and its total size. */
  quarantined(from: number): Promise<ColdAnswers["quarantine"]>;
}

export type OpenPlace = {
  readonly disk: OwnDisk;
  /** Checks that the location can be reached now. @throws the reason why it cannot. */
  probe(): Promise<void>;
  schedule(isSchedulable: boolean): Promise<void>;
  close(): Promise<void>;
};
