// Reads a file of a bucket: all of it into the folder that serves readers, or only the description in its end.
import type { Found } from "../disk/file-store.ts";
import { checksumOf } from "../put.ts";
import { fileName, PART_BYTES } from "./bucket-names.ts";
import type { BucketParts, Entry } from "./bucket-objects.ts";
import { foundIn, MOST_BEHIND, TRAILER_BYTES, trailerOf } from "./bucket-tail.ts";
import { trouble } from "./bucket-trouble.ts";

/** The number of last bytes that are read first; nearly always they contain the whole description. */
const FIRST_END_BYTES = 2048;

/** Does not verify the bytes: the readers compare the checksum. @throws the errors that `troubleOf` names. */
export async function fetchFile({ objects, names, spool }: BucketParts, file: number, entry: Entry): Promise<void> {
  const name = `${names.objects}${fileName(file, entry.epoch)}`;
  const get = async (key: string, sizeBytes: number, code: string) => {
    const bytes = await objects.get(key, sizeBytes);
    if (bytes === undefined) throw trouble(code, `${objects.url}/${key} is not there`);
    if (bytes.length !== sizeBytes) throw trouble("EBADMSG", `${objects.url}/${key}: expected ${sizeBytes} bytes, got ${bytes.length}`);
    return bytes;
  };
  await spool.bring(file, async (write) => {
    for (let part = 1; part <= entry.parts; part++) await write(await get(`${name}.${part}`, PART_BYTES, "EBADMSG"));
    await write(await get(name, entry.endBytes, "ENOENT"));
  });
}

/** @throws the errors that `troubleOf` names; damaged where the end differs from what was written. */
export async function readAbout({ objects, names, memory }: BucketParts, file: number, entry: Entry): Promise<Found> {
  const key = `${names.objects}${fileName(file, entry.epoch)}`;
  const damaged = () => trouble("EBADMSG", `${objects.url}/${key} is damaged`);
  const last = async (length: number) => {
    const start = Math.max(0, entry.endBytes - length);
    const bytes = await objects.get(key, MOST_BEHIND, { start, end: entry.endBytes });
    if (bytes === undefined) throw trouble("ENOENT", `${objects.url}/${key} is not there`);
    if (bytes.length !== entry.endBytes - start) throw damaged();
    return bytes;
  };
  let end = await last(FIRST_END_BYTES);
  const trailer = trailerOf(end, entry.parts * PART_BYTES + entry.endBytes);
  if (trailer === undefined || entry.endBytes < trailer.aboutBytes + TRAILER_BYTES) throw damaged();
  if (trailer.aboutBytes + TRAILER_BYTES > end.length) end = await last(trailer.aboutBytes + TRAILER_BYTES);
  const found = foundIn(file, end, trailer, (bytes) => {
    const lent = memory.forReading([bytes]);
    try {
      return checksumOf(lent.parts);
    } finally {
      lent.end(false);
    }
  });
  if (found === undefined) throw damaged();
  return found;
}
