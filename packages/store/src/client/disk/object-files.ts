// Objects as files of a folder, each whole or not there, with what it is and a checksum: the one place that knows how they are written.
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { Failure, fail } from "@svc/contract/failures.ts";
import { toWire } from "../../rpc/text.ts";
import { nativeClient } from "../native.ts";
import type { About, FileStore, Found } from "./file-store.ts";

/** Numbers reserved at a time: those left over at a crash are lost. */
const RESERVED = 4096;
/** The last number that an offset in the folder's segment can name. */
const MAX_FILE = 2 ** 28 - 1;
const THREADS = 4;
/** Bytes that a file has beside its object's, about. */
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

function addon(): Addon {
  nativeClient();
  return createRequire(import.meta.url)(
    process.env["SVC_STORE_NATIVE"] || fileURLToPath(new URL("../../../native/build/svc_store.node", import.meta.url)),
  ) as Addon;
}

/** Failures of the disk: `full` is the one that room cures, `damaged` that the file's bytes are not what was stored, `other` that memory had other bytes. */
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

  /** @param syncs a file counts once it is on the device. @throws SETTING_INVALID where the folder cannot be used, or another process uses it. */
  static open(folder: string, syncs = false): ObjectFiles {
    try {
      return new ObjectFiles(folder, new (addon().NativeFiles)(toWire(folder), THREADS, syncs));
    } catch (error) {
      if (error instanceof Failure) throw error;
      return fail("SETTING_INVALID", `the folder for objects on disk: ${(error as Error).message}`, { cause: error });
    }
  }

  /** The numbers of all files; what was left half written is gone. Before anything is written. */
  async list(): Promise<number[]> {
    const [next = 1, ...files] = await this.#watched(() => this.#native.list());
    this.#next = this.#reserved = next;
    return files;
  }

  /** A number that no file had. @throws CAPACITY_EXHAUSTED when all were given. */
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
   * The checksum of the ranges' bytes: words are local address, 0 and length of each, and must stay until it is done. There is no file where
   * it is not the `expected` one; without one the file does not outlive this process before it is settled, since its bytes may be any.
   */
  write(file: number, words: BigUint64Array, about: About, expected: bigint | undefined): Promise<bigint> {
    return this.#watched(() => this.#native.write(file, words, Buffer.from(JSON.stringify(about), "latin1"), expected));
  }

  /** Its master says that it has what its object had. */
  settle(file: number): Promise<void> {
    return this.#watched(() => this.#native.settle(file));
  }

  /** One that is not there is as good as removed. */
  remove(file: number): Promise<void> {
    return this.#watched(() => this.#native.remove(file));
  }

  /** @throws what `troubleOf` names; damaged where its bytes are not those that were stored. */
  verify(file: number): Promise<void> {
    return this.#watched(() => this.#native.verify(file));
  }

  async about(file: number): Promise<Found> {
    const [sizeBytes, checksum, text] = await this.#watched(() => this.#native.about(file));
    return { ...(JSON.parse(text.toString("latin1")) as About), file, sizeBytes, checksum };
  }

  /** Bytes of its file system: all, and free ones. */
  space(): Promise<[number, number]> {
    return this.#watched(() => this.#native.space());
  }

  /** For how long something waits for the disk, and nothing came back meanwhile. */
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
