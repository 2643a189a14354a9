// Where a device on an S3-compatible server has its objects: the names below its prefix, each written once and never over another.
import { fail } from "@svc/contract/failures.ts";

//  PREFIX/ID/device.json                            whose it is: the device, its tenant, the master's name for it
//  PREFIX/ID/owners/EPOCH-STABLE                    a start of an owner; the highest epoch serves the device
//  PREFIX/ID/numbers/EPOCH-NEXT                     file numbers below NEXT are given
//  PREFIX/ID/objects/NUMBER-EPOCH                   a file's end: its last bytes, what it is, its checksum. Without it there is no file
//  PREFIX/ID/objects/NUMBER-EPOCH.1, .2, ...        what precedes the end, 4 MiB each
//  PREFIX/ID/pending/NUMBER-EPOCH                   that file is not whole yet, or nobody vouches for it yet
//  PREFIX/ID/__orphan_quarantine__/NAME             files that no object claims, and damaged ones
//  PREFIX/__pending__/ID/__orphan_quarantine__/NAME files that were half written when their owner ended
export const PART_BYTES = 4 * 2 ** 20;
const QUARANTINE = "__orphan_quarantine__";
const EPOCH_DIGITS = 14;
const NUMBER_DIGITS = 8;
/** Leaves room for what stands behind it in a key of S3, which has 1024 bytes at most. */
const MAX_BASE = 700;

export type Names = {
  readonly device: string;
  readonly clock: string;
  readonly owners: string;
  readonly numbers: string;
  readonly objects: string;
  readonly pending: string;
  readonly quarantine: { readonly final: string; readonly pending: string };
};

/** `id`: as `encoded` writes it. @throws INVALID_REQUEST where names would be too long. */
export function namesOf(prefix: string, id: string): Names {
  // A key's part does not begin with a dot.
  const folder = id.replace(/^\./, "~2E");
  if (prefix.length + folder.length > MAX_BASE)
    fail("INVALID_REQUEST", `the prefix and the device's id have ${prefix.length + folder.length} characters as an object's name; the maximum is ${MAX_BASE}`);
  return {
    device: `${folder}/device.json`,
    clock: `${folder}/clock`,
    owners: `${folder}/owners/`,
    numbers: `${folder}/numbers/`,
    objects: `${folder}/objects/`,
    pending: `${folder}/pending/`,
    quarantine: { final: `${folder}/${QUARANTINE}/`, pending: `__pending__/${folder}/${QUARANTINE}/` },
  };
}

const hex = (value: number, digits: number) => value.toString(16).padStart(digits, "0");

export const ownerName = (epoch: number, stable: string): string => `${hex(epoch, EPOCH_DIGITS)}-${stable}`;
export const numbersName = (epoch: number, next: number): string => `${hex(epoch, EPOCH_DIGITS)}-${hex(next, NUMBER_DIGITS)}`;
export const fileName = (file: number, epoch: number): string => `${hex(file, NUMBER_DIGITS)}-${hex(epoch, EPOCH_DIGITS)}`;

/** The file that a name of `objects/` or `pending/` belongs to; `part` 0 is its end. Undefined for what no device wrote. */
export function fileOf(name: string): { readonly file: number; readonly epoch: number; readonly part: number } | undefined {
  const [, file, epoch, part = "0"] = /^([0-9a-f]{8})-([0-9a-f]{14})(?:\.([1-9]\d{0,4}))?$/.exec(name) ?? [];
  if (file === undefined || epoch === undefined) return undefined;
  return { file: Number.parseInt(file, 16), epoch: Number.parseInt(epoch, 16), part: Number(part) };
}

/** Of a name of `owners/`. */
export function ownerOf(name: string): { readonly epoch: number; readonly stable: string } | undefined {
  const [, epoch, stable] = /^([0-9a-f]{14})-([0-9a-f]{16})$/.exec(name) ?? [];
  return epoch === undefined || stable === undefined ? undefined : { epoch: Number.parseInt(epoch, 16), stable };
}

/** The first number that is free after a name of `numbers/`. */
export function nextOf(name: string): number | undefined {
  const [, next] = /^[0-9a-f]{14}-([0-9a-f]{8})$/.exec(name) ?? [];
  return next === undefined ? undefined : Number.parseInt(next, 16);
}
