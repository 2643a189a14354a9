// Maps a replica on another client's disk to a segment of the transfer engine.
import type { Descriptor } from "../../rpc/shapes.ts";

/** File N begins at N << FILE_SHIFT in a folder's segment. */
const FILE_SHIFT = 35n;
const IS_FILE = 1n << 63n;
const LABEL_SHIFT = 32n;
const LABEL_MASK = 0xffffn;
const FILE_MASK = 0xfff_ffffn;

/** Labels of cold-tier devices in a bucket, whose files are slow to fetch, begin here. */
export const FIRST_BUCKET_LABEL = 0xc000;

export type DiskPlace = { readonly segment: string; readonly address: bigint; readonly sizeBytes: number };

export const diskAddress = (file: number): bigint => BigInt(file) << FILE_SHIFT;

/** Returns undefined for a replica on the disk of a Mooncake client, whose files are not segments. */
export function diskPlace({ id, place }: Descriptor): DiskPlace | undefined {
  if (place.type !== "localDisk" || (id & IS_FILE) === 0n) return undefined;
  const label = (id >> LABEL_SHIFT) & LABEL_MASK;
  return { segment: `nvmeof/${place.endpoint}/${label}`, address: (id & FILE_MASK) << FILE_SHIFT, sizeBytes: Number(place.sizeBytes) };
}

export const isBucketSegment = (endpoint: string): boolean =>
  isDiskSegment(endpoint) && Number(endpoint.slice(endpoint.lastIndexOf("/") + 1)) >= FIRST_BUCKET_LABEL;
/** Matches a folder that an owner serves; its label is a number. */
export const isDiskSegment = (endpoint: string): boolean => /^nvmeof\/.+\/\d+$/.test(endpoint);
/** Matches any segment that needs the engine's nvmeof transport: such a folder, or a NOF segment. */
export const isFileSegment = (endpoint: string): boolean => endpoint.startsWith("nvmeof/");
