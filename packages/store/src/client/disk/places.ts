// Where a file of another client's disk is read: the master's replica as a segment of the transfer engine.
import type { Descriptor } from "../../rpc/shapes.ts";

/** In a folder's segment, file N begins here. */
const FILE_SHIFT = 35n;
const IS_FILE = 1n << 63n;
const LABEL_SHIFT = 32n;
const LABEL_MASK = 0xffffn;
const FILE_MASK = 0xfff_ffffn;

/** Labels of the cold tier's devices that lie on a server, whose files are long in coming, begin here. */
export const FIRST_BUCKET_LABEL = 0xc000;

export type DiskPlace = { readonly segment: string; readonly address: bigint; readonly sizeBytes: number };

export const diskAddress = (file: number): bigint => BigInt(file) << FILE_SHIFT;

/** Undefined for a replica on the disk of an owner of the field, whose files are no segments. */
export function diskPlace({ id, place }: Descriptor): DiskPlace | undefined {
  if (place.type !== "localDisk" || (id & IS_FILE) === 0n) return undefined;
  const label = (id >> LABEL_SHIFT) & LABEL_MASK;
  return { segment: `nvmeof/${place.endpoint}/${label}`, address: (id & FILE_MASK) << FILE_SHIFT, sizeBytes: Number(place.sizeBytes) };
}

export const isBucketSegment = (endpoint: string): boolean =>
  isDiskSegment(endpoint) && Number(endpoint.slice(endpoint.lastIndexOf("/") + 1)) >= FIRST_BUCKET_LABEL;
/** A folder that an owner serves; its label is a number. */
export const isDiskSegment = (endpoint: string): boolean => /^nvmeof\/.+\/\d+$/.test(endpoint);
/** Any that needs the engine's transport of that name: such a folder, or a NOF segment. */
export const isFileSegment = (endpoint: string): boolean => endpoint.startsWith("nvmeof/");
