// Parses the end of a file without reading its bytes; files in a folder have the same format (native/src/client/object_files.h).
import type { About, Found } from "../disk/file-store.ts";

//  file: bytes | about | trailer
//  trailer: "svcfile1" | size of the bytes | their checksum | size of about, reserved (4 bytes each) | checksum of about and of what precedes
export const TRAILER_BYTES = 40;
const MAGIC = "svcfile1";
const MOST_ABOUT = 2 ** 20;
/** The largest end of a file: its description and its trailer. */
export const MOST_BEHIND = MOST_ABOUT + TRAILER_BYTES;

type Trailer = { readonly sizeBytes: number; readonly checksum: bigint; readonly aboutBytes: number; readonly ownChecksum: bigint };

/** Parses a buffer's last bytes; returns undefined where they are not the trailer of a file of that size. */
export function trailerOf(end: Buffer, fileBytes: number): Trailer | undefined {
  if (end.length < TRAILER_BYTES) return undefined;
  const from = end.length - TRAILER_BYTES;
  if (end.toString("latin1", from, from + MAGIC.length) !== MAGIC) return undefined;
  const sizeBytes = Number(end.readBigUInt64LE(from + 8));
  const aboutBytes = end.readUInt32LE(from + 24);
  if (aboutBytes > MOST_ABOUT || sizeBytes + aboutBytes + TRAILER_BYTES !== fileBytes) return undefined;
  return { sizeBytes, checksum: end.readBigUInt64LE(from + 16), aboutBytes, ownChecksum: end.readBigUInt64LE(from + 32) };
}

/** `end` holds all bytes that follow the object's; returns undefined where they are damaged. */
export function foundIn(file: number, end: Buffer, trailer: Trailer, checksumOf: (bytes: Buffer) => bigint): Found | undefined {
  const behind = end.subarray(end.length - TRAILER_BYTES - trailer.aboutBytes);
  if (checksumOf(behind.subarray(0, behind.length - 8)) !== trailer.ownChecksum) return undefined;
  const about = JSON.parse(behind.toString("latin1", 0, trailer.aboutBytes)) as About;
  return { ...about, file, sizeBytes: trailer.sizeBytes, checksum: trailer.checksum };
}
