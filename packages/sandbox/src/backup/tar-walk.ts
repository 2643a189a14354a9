// Reads a tar stream as it passes: each entry's path, where it lies in the stream, and the digest of its bytes there.
import { createHash, type Hash } from "node:crypto";
import { fail } from "@svc/contract/failures.ts";

export type Walked = {
  readonly path: string;
  /** The position of the entry's first header block in the stream, and of the byte after its last. */
  readonly from: number;
  readonly to: number;
  readonly sha256: string;
};

const BLOCK = 512;
/** Extended headers hold paths and attributes; a sparse file's map lies in its data. */
const MAX_EXTENDED_BYTES = 2 ** 20;
const EXTENDED = "x";
const GLOBAL = "g";

export interface TarWalk {
  write(chunk: Buffer): void;
  /** @throws BACKUP_DAMAGED if the stream ends within an entry. */
  end(): void;
}

/** `onEntry` is called once per entry, in order. @throws BACKUP_DAMAGED from `write` for bytes that are not tar. */
export function walkTar(onEntry: (entry: Walked) => void): TarWalk {
  let position = 0;
  let header: Buffer = Buffer.alloc(0);
  /** Bytes of the present entry's data, and of the padding behind it, that have not come yet. */
  let dataLeft = 0;
  let paddingLeft = 0;
  let extended: Buffer[] | undefined;
  let named: { path: string | undefined; size: number | undefined } = { path: undefined, size: undefined };
  let entry: { path: string; from: number; hash: Hash } | undefined;
  let began: { from: number; hash: Hash } | undefined;
  let isOver = false;

  function finish(): void {
    if (entry === undefined) return;
    onEntry({ path: entry.path, from: entry.from, to: position, sha256: entry.hash.digest("hex") });
    entry = undefined;
    began = undefined;
    named = { path: undefined, size: undefined };
  }

  function take(block: Buffer): void {
    if (block.every((byte) => byte === 0)) {
      isOver = true;
      return;
    }
    if (!hasItsSum(block)) fail("BACKUP_DAMAGED", `the archive has no valid header at byte ${position}`);
    const type = String.fromCharCode(block[156] ?? 0);
    const isExtended = type === EXTENDED || type === GLOBAL;
    began ??= { from: position, hash: createHash("sha256") };
    began.hash.update(block);
    const size = (isExtended ? undefined : named.size) ?? numberIn(block.subarray(124, 136));
    // Links and folders have no data, whatever their size says.
    dataLeft = isExtended || type === "0" || type === "\0" || type === "7" ? size : 0;
    paddingLeft = (BLOCK - (dataLeft % BLOCK)) % BLOCK;
    if (isExtended) {
      if (size > MAX_EXTENDED_BYTES) fail("BACKUP_DAMAGED", `the archive has an extended header of ${size} bytes at byte ${position}`);
      extended = [];
    } else entry = { ...began, path: named.path ?? pathIn(block) };
  }

  function readExtended(): void {
    const body = Buffer.concat(extended ?? []);
    extended = undefined;
    for (let at = 0; at < body.length; ) {
      const space = body.indexOf(0x20, at);
      const length = Number(body.toString("latin1", at, space));
      if (space < 0 || !(length > 0)) fail("BACKUP_DAMAGED", `the archive has an extended header that cannot be read before byte ${position}`);
      const record = body.toString("utf8", space + 1, at + length - 1);
      const equals = record.indexOf("=");
      const [key, value] = [record.slice(0, equals), record.slice(equals + 1)];
      if (key === "path" && named.path === undefined) named.path = value;
      // A sparse file's header has a name of tar's own making.
      if (key === "GNU.sparse.name") named.path = value;
      if (key === "size") named.size = Number(value);
      at += length;
    }
  }

  return {
    write(chunk) {
      for (let at = 0; at < chunk.length; ) {
        if (isOver) {
          position += chunk.length - at;
          return;
        }
        if (dataLeft > 0 || paddingLeft > 0) {
          const isData = dataLeft > 0;
          const part = chunk.subarray(at, at + (isData ? dataLeft : paddingLeft));
          began?.hash.update(part);
          if (isData) {
            extended?.push(part);
            dataLeft -= part.length;
          } else paddingLeft -= part.length;
          at += part.length;
          position += part.length;
          if (dataLeft === 0 && paddingLeft === 0) {
            if (extended !== undefined) readExtended();
            else finish();
          }
          continue;
        }
        const part = chunk.subarray(at, at + BLOCK - header.length);
        header = header.length === 0 && part.length === BLOCK ? part : Buffer.concat([header, part]);
        at += part.length;
        if (header.length < BLOCK) continue;
        const block = header;
        header = Buffer.alloc(0);
        take(block);
        position += BLOCK;
        if (dataLeft === 0 && paddingLeft === 0) {
          if (extended !== undefined) readExtended();
          else finish();
        }
      }
    },
    end() {
      if (!isOver) fail("BACKUP_DAMAGED", `the archive ends at byte ${position}, before its end mark`);
    },
  };
}

function hasItsSum(block: Buffer): boolean {
  let sum = 0;
  for (let at = 0; at < BLOCK; at++) sum += at >= 148 && at < 156 ? 0x20 : (block[at] ?? 0);
  return Number.parseInt(text(block.subarray(148, 156)), 8) === sum;
}

/** Large numbers are in base 256, marked by the first bit. */
function numberIn(field: Buffer): number {
  if (((field[0] ?? 0) & 0x80) === 0) return Number.parseInt(text(field), 8) || 0;
  return Number(field.subarray(1).reduce((sum, byte) => sum * 256n + BigInt(byte), 0n));
}

function pathIn(block: Buffer): string {
  const [name, prefix] = [text(block.subarray(0, 100)), text(block.subarray(345, 500))];
  return prefix === "" ? name : `${prefix}/${name}`;
}

const text = (field: Buffer) => {
  const end = field.indexOf(0);
  return field.toString("utf8", 0, end < 0 ? field.length : end).trim();
};
