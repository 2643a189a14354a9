// A file or block device that a client mounts as a NOF segment. Its id is stored
// at its beginning, so that the next process to open it has the same objects.
import { randomUUID } from "node:crypto";
import { type FileHandle, open, readFile } from "node:fs/promises";
import { isAbsolute } from "node:path";
import { fail, isDiskFull } from "@svc/contract/failures.ts";
import { nativeClient } from "./native.ts";

//  offset 0            4096                                       end
//  | head, zeros       | ranges of objects, each of whole blocks  |
// head: one line of JSON with the segment's id and the size of the whole file; with another size it is a new segment

export type NofOptions = {
  /** An absolute path. */
  readonly file: string;
  /** The size of a file that does not exist yet or is empty; an existing file keeps its size. */
  readonly bytes?: number;
};

export const NOF_BLOCK = 4096;
/** The beginning that must be zeros in a file without a head; otherwise it may be a file system in use. */
const LOOKED_AT = 1 << 20;
const FORMAT = "svc nof segment 1";

type Head = { readonly format: typeof FORMAT; readonly id: string; readonly bytes: number };

export class NofFile {
  readonly path: string;
  readonly id: string;
  /** The capacity for objects, which begin at `NOF_BLOCK`. */
  readonly sizeBytes: number;
  readonly #handle: FileHandle;

  private constructor(handle: FileHandle, path: string, { id, bytes }: Head) {
    this.#handle = handle;
    this.path = path;
    this.id = id;
    this.sizeBytes = Math.floor((bytes - NOF_BLOCK) / NOF_BLOCK) * NOF_BLOCK;
  }

  /**
   * Locks the file until it is closed, so that no two processes of a host mount it.
   * @throws SETTING_INVALID where it cannot be used, or contains something else; DISK_FULL.
   */
  static async open({ file: path, bytes = 0 }: NofOptions): Promise<NofFile> {
    if (!isAbsolute(path)) fail("SETTING_INVALID", `NOF segment: expected an absolute path, got ${JSON.stringify(path)}`);
    let handle: FileHandle | undefined;
    try {
      handle = await opened(path, bytes);
      if (!nativeClient().lockFile(handle.fd)) fail("SETTING_INVALID", `NOF segment ${path}: another process has it; stop that one first`);
      const whole = await lengthOf(handle, path, bytes);
      return new NofFile(handle, path, (await headOf(handle, path, whole)) ?? (await begun(handle, whole)));
    } catch (error) {
      await handle?.close();
      if (isDiskFull(error)) fail("DISK_FULL", `NOF segment ${path}: the disk is full`, { cause: error });
      if (typeof (error as NodeJS.ErrnoException).code !== "string") throw error;
      return fail("SETTING_INVALID", `NOF segment ${path}: ${(error as Error).message}`, { cause: error });
    }
  }

  get segmentName(): string {
    return `nof/${this.id}`;
  }

  /** The label of the served file in the transfer engine; unlike those of folders it is not a number. */
  get label(): string {
    return `nof-${this.id}`;
  }

  close(): Promise<void> {
    return this.#handle.close();
  }
}

async function opened(path: string, bytes: number): Promise<FileHandle> {
  try {
    return await open(path, "r+");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    if (bytes === 0) fail("SETTING_INVALID", `NOF segment ${path}: the file is not there; give its size (nof_size, or bytes), and it is made`);
  }
  return open(path, "wx+", 0o600);
}

/** Also sets the length of an empty file. */
async function lengthOf(handle: FileHandle, path: string, bytes: number): Promise<number> {
  const found = await handle.stat({ bigint: true });
  if (!found.isFile() && !found.isBlockDevice()) fail("SETTING_INVALID", `NOF segment ${path}: expected a file or block device`);
  let length = found.isFile() ? Number(found.size) : await deviceBytes(found.rdev);
  if (found.isFile() && length === 0 && bytes > 0) {
    await handle.truncate(bytes);
    length = bytes;
  }
  if (length < 2 * NOF_BLOCK) fail("SETTING_INVALID", `NOF segment ${path}: expected ${2 * NOF_BLOCK} bytes or more, got ${length}`);
  return length;
}

async function deviceBytes(rdev: bigint): Promise<number> {
  const major = ((rdev >> 8n) & 0xfffn) | ((rdev >> 32n) & ~0xfffn);
  const minor = (rdev & 0xffn) | ((rdev >> 12n) & 0xffffff00n);
  return Number((await readFile(`/sys/dev/block/${major}:${minor}/size`, "latin1")).trim()) * 512;
}

/** Returns undefined for an empty file, and for one whose size changed since its head was written. */
async function headOf(handle: FileHandle, path: string, bytes: number): Promise<Head | undefined> {
  const start = Buffer.alloc(Math.min(LOOKED_AT, bytes));
  await handle.read(start, 0, start.length, 0);
  if (start.every((byte) => byte === 0)) return undefined;
  const line = start.subarray(0, Math.min(NOF_BLOCK, start.indexOf(0) < 0 ? NOF_BLOCK : start.indexOf(0))).toString("latin1");
  if (line.startsWith(`{"format":"${FORMAT}"`)) {
    const head = parsed(line);
    if (head !== undefined) return head.bytes === bytes ? head : undefined;
  }
  return fail("SETTING_INVALID", `NOF segment ${path}: it holds something else, which would be overwritten; its first MiB must be zeros to begin with`);
}

function parsed(line: string): Head | undefined {
  try {
    const { id, bytes } = JSON.parse(line) as Head;
    return /^[0-9a-f-]{36}$/.test(id) && Number.isSafeInteger(bytes) ? { format: FORMAT, id, bytes } : undefined;
  } catch {
    return undefined;
  }
}

async function begun(handle: FileHandle, bytes: number): Promise<Head> {
  const head: Head = { format: FORMAT, id: randomUUID(), bytes };
  const block = Buffer.alloc(NOF_BLOCK);
  block.write(`${JSON.stringify(head)}\n`, "latin1");
  await handle.write(block, 0, NOF_BLOCK, 0);
  await handle.sync();
  return head;
}
