// Objects as files of a folder, each complete or absent, with a description and a checksum: the only code that knows their format.
import { Failure, fail } from "@svc/contract/failures.ts";
import { loadAddon } from "../../rpc/native-addon.ts";
import { toWire } from "../../rpc/text.ts";
import type { About, FileStore, Found } from "./file-store.ts";

/** The file numbers that are reserved at a time; unused ones are lost in a crash. */
const RESERVED = 4096;
/** The last number that an offset in the folder's segment can encode. */
const MAX_FILE = 2 ** 28 - 1;
const THREADS = 4;
/** The approximate size of a file in addition to its object's bytes. */
export const OVERHEAD_BYTES = 512;

interface NativeFiles {
  write(file: number, words: BigUint64Array, about: Buffer, checksum?: bigint): Promise<bigint>;
  settle(file: number): Promise<void>;
  remove(file: number): Promise<void>;
  verify(file: number): Promise<void>;
  about(file: number): Promise<[number, bigint, Buffer]>;
  list(): Promise<number[]>;
  reserve(next: number): Promise<void>;
  space(): Promise<[number, number]>;
  close(): void;
}
type Addon = { NativeFiles: new (folder: string, threads: number, syncs: boolean) => NativeFiles };

/**
 * Failures of the disk. `full` ends once space is freed, `damaged` means that the file
 * differs from what was stored, `other` that memory had other bytes than expected.
 */
export type DiskTrouble = "full" | "damaged" | "gone" | "other" | "failed";
export const troubleOf = (error: unknown): DiskTrouble =>
  (({ ENOSPC: "full", EBADMSG: "damaged", ENOENT: "gone", ECANCELED: "other" }) as const)[(error as { code?: string }).code ?? ""] ?? "failed";

export class ObjectFiles implements FileStore {
  readonly silence = "the disk does not answer";
  readonly folder: string;
  readonly #native: NativeFiles;
  #next = 0;
  #reserved = 0;
  #reserving: Promise<void> | undefined;
  #sinceMs = 0;
  #waiting = 0;

  private constructor(folder: string, native: NativeFiles) {
    this.folder = folder;
    this.#native = native;
  }

  /** @param syncs a file counts only once it is synced to the device. @throws SETTING_INVALID where the folder cannot be used, or another process uses it. */
  static open(folder: string, syncs = false): ObjectFiles {
    try {
      return new ObjectFiles(folder, new (loadAddon<Addon>().NativeFiles)(toWire(folder), THREADS, syncs));
    } catch (error) {
      if (error instanceof Failure) throw error;
      return fail("SETTING_INVALID", `the folder for objects on disk: ${(error as Error).message}`, { cause: error });
    }
  }

  /** Returns the numbers of all files, after removing incomplete ones. It must be called before anything is written. */
  async list(): Promise<number[]> {
    const [next = 1, ...files] = await this.#watched(() => this.#native.list());
    this.#next = this.#reserved = next;
    return files;
  }

  /** Returns a number that no file ever had. @throws CAPACITY_EXHAUSTED when all numbers are used. */
  async number(): Promise<number> {
    if (this.#next >= MAX_FILE) fail("CAPACITY_EXHAUSTED", `${this.folder}: all ${MAX_FILE} file numbers are used up; start with an empty folder`);
    while (this.#next >= this.#reserved) {
      this.#reserving ??= this.#watched(() => this.#native.reserve(this.#reserved + RESERVED))
        .then(() => void (this.#reserved += RESERVED))
        .finally(() => {
          this.#reserving = undefined;
        });
      await this.#reserving;
    }
    return this.#next++;
  }

  /**
   * Writes the bytes of the ranges and returns their checksum. `words` has local address, 0 and length of each range;
   * the memory must stay until this resolves. No file is created if the checksum is not the `expected` one. Without
   * an expected checksum the file does not outlive this process before it is settled, since its bytes may be any.
   */
  write(file: number, words: BigUint64Array, about: About, expected: bigint | undefined): Promise<bigint> {
    return this.#watched(() => this.#native.write(file, words, Buffer.from(JSON.stringify(about), "latin1"), expected));
  }

  /** Marks the file as accepted by the master. */
  settle(file: number): Promise<void> {
    return this.#watched(() => this.#native.settle(file));
  }

  /** A file that does not exist counts as removed. */
  remove(file: number): Promise<void> {
    return this.#watched(() => this.#native.remove(file));
  }

  /** @throws the errors that `troubleOf` names; damaged where its bytes are not those that were stored. */
  verify(file: number): Promise<void> {
    return this.#watched(() => this.#native.verify(file));
  }

  async about(file: number): Promise<Found> {
    const [sizeBytes, checksum, text] = await this.#watched(() => this.#native.about(file));
    return { ...(JSON.parse(text.toString("latin1")) as About), file, sizeBytes, checksum };
  }

  /** Returns the total and the free bytes of its file system. */
  space(): Promise<[number, number]> {
    return this.#watched(() => this.#native.space());
  }

  /** Returns how long operations have waited without any answer from the disk. */
  get silentMs(): number {
    return this.#waiting === 0 ? 0 : performance.now() - this.#sinceMs;
  }

  close(): void {
    this.#native.close();
  }

  async #watched<T>(act: () => Promise<T>): Promise<T> {
    if (this.#waiting++ === 0) this.#sinceMs = performance.now();
    try {
      return await act();
    } finally {
      this.#waiting--;
      this.#sinceMs = performance.now();
    }
  }
}
