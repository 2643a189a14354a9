// Reads the file of an exported snapshot as a strict stream, with no more than one entry in memory.
import { fail } from "@svc/contract/failures.ts";
import { CHUNK_FOLDER, MANIFEST_ENTRY } from "./archive-write.ts";
import { CHUNK_BYTES } from "./chunk-thread.ts";
import { MAX_MANIFEST_BYTES } from "./manifest.ts";

const BLOCK_BYTES = 512;
/** The longest time without a byte of the file. */
const SILENCE_MS = 60_000;
const CHUNK_NAME = /^[0-9a-f]{64}$/;

export interface ArchiveReader {
  /** Reads the first entry. */
  manifest(): Promise<Buffer>;
  /** Yields each chunk under its stated name without verifying it. Ends with the archive; any data after its end is an error. */
  chunks(): AsyncGenerator<{ readonly sha256: string; readonly bytes: Buffer }>;
}

/** @throws INVALID_REQUEST for a file of another format, SNAPSHOT_DAMAGED for a truncated one, TIMED_OUT. */
export function readArchive(body: AsyncIterable<Buffer>): ArchiveReader {
  // I46
  const incoming = body[Symbol.asyncIterator]();
  const pending: Buffer[] = [];
  let pendingBytes = 0;
  let readBytes = 0;

  async function more(): Promise<boolean> {
    let timer: NodeJS.Timeout | undefined;
    const silence = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error("silence")), SILENCE_MS);
    });
    const next = await Promise.race([incoming.next(), silence])
      .catch((cause: unknown) =>
        (cause as Error).message === "silence"
          ? fail("TIMED_OUT", `no data of the file arrived for ${SILENCE_MS / 1000} s after ${readBytes + pendingBytes} bytes`)
          : fail("SNAPSHOT_DAMAGED", `the file ended early, after ${readBytes + pendingBytes} bytes`, { cause }),
      )
      .finally(() => clearTimeout(timer));
    if (next.done === true) return false;
    pending.push(next.value);
    pendingBytes += next.value.length;
    return true;
  }

  /** Returns exactly `count` bytes in a buffer of their own. */
  async function take(count: number): Promise<Buffer> {
    while (pendingBytes < count)
      if (!(await more())) fail("SNAPSHOT_DAMAGED", `the file ends after ${readBytes + pendingBytes} bytes, in the middle: it was truncated`);
    const taken = Buffer.alloc(count);
    let done = 0;
    while (done < count) {
      const first = pending[0] as Buffer;
      const part = first.subarray(0, count - done);
      done += part.copy(taken, done);
      if (part.length === first.length) pending.shift();
      else pending[0] = first.subarray(part.length);
    }
    pendingBytes -= count;
    readBytes += count;
    return taken;
  }

  /** Called after the first of the two zero blocks that end an archive. */
  async function ended(): Promise<void> {
    const second = await take(BLOCK_BYTES);
    while (second.every((byte) => byte === 0) && pendingBytes === 0) if (!(await more())) return;
    fail("SNAPSHOT_DAMAGED", `the file continues after its end, at byte ${readBytes}: something was appended; export the snapshot again`);
  }

  /** Returns the entry's name and size; undefined at the end. */
  async function entry(): Promise<{ readonly name: string; readonly sizeBytes: number } | undefined> {
    const header = await take(BLOCK_BYTES);
    if (header.every((byte) => byte === 0)) return void (await ended());
    const name = textAt(header, 0, 100);
    const sizeBytes = Number.parseInt(textAt(header, 124, 12).trim(), 8);
    const kind = textAt(header, 156, 1);
    const prefix = textAt(header, 345, 155);
    if (!isSum(header) || (kind !== "0" && kind !== "") || prefix !== "" || !Number.isSafeInteger(sizeBytes) || sizeBytes < 0)
      fail("INVALID_REQUEST", `what begins at byte ${readBytes - BLOCK_BYTES} is not an entry of an exported snapshot`);
    return { name, sizeBytes };
  }

  async function bodyOf(sizeBytes: number): Promise<Buffer> {
    const bytes = await take(sizeBytes);
    const rest = (BLOCK_BYTES - (sizeBytes % BLOCK_BYTES)) % BLOCK_BYTES;
    if (rest > 0 && (await take(rest)).some((byte) => byte !== 0))
      fail("SNAPSHOT_DAMAGED", `the ${rest} bytes before byte ${readBytes} of the file are not zero: it was changed; export the snapshot again`);
    return bytes;
  }

  return {
    async manifest() {
      const first = await entry();
      if (first?.name !== MANIFEST_ENTRY) fail("INVALID_REQUEST", `the file does not begin with ${MANIFEST_ENTRY}: it is not an exported snapshot`);
      if (first.sizeBytes > MAX_MANIFEST_BYTES) fail("PAYLOAD_TOO_LARGE", `its manifest has ${first.sizeBytes} bytes; the maximum is ${MAX_MANIFEST_BYTES}`);
      return bodyOf(first.sizeBytes);
    },
    async *chunks() {
      for (let next = await entry(); next !== undefined; next = await entry()) {
        const sha256 = next.name.startsWith(CHUNK_FOLDER) ? next.name.slice(CHUNK_FOLDER.length) : "";
        if (!CHUNK_NAME.test(sha256)) fail("INVALID_REQUEST", `${JSON.stringify(next.name)} is not an entry of an exported snapshot`);
        if (next.sizeBytes > CHUNK_BYTES) fail("INVALID_REQUEST", `chunk ${sha256} has ${next.sizeBytes} bytes; the maximum is ${CHUNK_BYTES}`);
        yield { sha256, bytes: await bodyOf(next.sizeBytes) };
      }
    },
  };
}

function textAt(header: Buffer, at: number, length: number): string {
  const end = header.subarray(at, at + length).indexOf(0);
  return header.toString("latin1", at, at + (end === -1 ? length : end));
}

/** The checksum of a tar header counts its own field as spaces. */
function isSum(header: Buffer): boolean {
  const stated = Number.parseInt(textAt(header, 148, 8).trim(), 8);
  return stated === header.reduce((sum, byte, at) => sum + (at >= 148 && at < 156 ? 0x20 : byte), 0);
}
