// The object names of a device on an S3-compatible server, below its prefix; each is written once and never overwritten.
import { fail } from "@svc/contract/failures.ts";

// PREFIX/ID/device.json                            the record: the device, its tenant, the master's id of it
//  PREFIX/ID/owners/EPOCH-STABLE                    a claim: one start of an owner; the highest epoch serves the device
//  PREFIX/ID/numbers/EPOCH-NEXT                     file numbers below NEXT are reserved
//  PREFIX/ID/objects/NUMBER-EPOCH                   a file's end: its last bytes, description and checksum. Without it there is no file
//  PREFIX/ID/objects/NUMBER-EPOCH.1, .2, ...        the parts before the end, 4 MiB each
//  PREFIX/ID/pending/NUMBER-EPOCH                   that file is incomplete, or not accepted by the master yet
//  PREFIX/ID/__orphan_quarantine__/NAME             files that no object refers to, and damaged ones
//  PREFIX/__pending__/ID/__orphan_quarantine__/NAME files that were incomplete when their owner ended
export const PART_BYTES = 4 * 2 ** 20;
const QUARANTINE = "__orphan_quarantine__";
const EPOCH_DIGITS = 14;
const NUMBER_DIGITS = 8;
/** Leaves space for the suffixes of a key, which S3 limits to 1024 bytes. */
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

/** Expects `id` as `encoded` writes it. @throws INVALID_REQUEST where names would be too long. */
export function namesOf(prefix: string, id: string): Names {
  // The parts of a key must not begin with a dot.
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

/** Parses a name of `objects/` or `pending/`; `part` 0 is the file's end. Returns undefined for names that no device wrote. */
export function fileOf(name: string): { readonly file: number; readonly epoch: number; readonly part: number } | undefined {
  const [, file, epoch, part = "0"] = /^([0-9a-f]{8})-([0-9a-f]{14})(?:\.([1-9]\d{0,4}))?$/.exec(name) ?? [];
  if (file === undefined || epoch === undefined) return undefined;
  return { file: Number.parseInt(file, 16), epoch: Number.parseInt(epoch, 16), part: Number(part) };
}

/** Parses a name of `owners/`. */
export function ownerOf(name: string): { readonly epoch: number; readonly stable: string } | undefined {
  const [, epoch, stable] = /^([0-9a-f]{14})-([0-9a-f]{16})$/.exec(name) ?? [];
  return epoch === undefined || stable === undefined ? undefined : { epoch: Number.parseInt(epoch, 16), stable };
}

/** Returns the first free number after a name of `numbers/`. */
export function nextOf(name: string): number | undefined {
  const [, next] = /^[0-9a-f]{14}-([0-9a-f]{8})$/.exec(name) ?? [];
  return next === undefined ? undefined : Number.parseInt(next, 16);
}
