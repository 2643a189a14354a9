// Files of the folder that clients and masters share: each complete or absent, with names that never lead out of the folder; every wait is bounded.
import { isAbsolute } from "node:path";
import { loadAddon } from "../rpc/native-addon.ts";
import { toWire } from "../rpc/text.ts";

interface NativeShared {
  write(name: string, words: BigUint64Array, syncs: boolean): Promise<void>;
  writeSync(name: string, words: BigUint64Array, syncs: boolean, timeoutMs: number): string | undefined;
  read(name: string, sizeBytes: number): Promise<Buffer>;
  readSync(name: string, sizeBytes: number, timeoutMs: number): Buffer | string;
  place(bytes: Buffer, words: BigUint64Array): void;
  remove(name: string): Promise<void>;
  verify(name: string, sizeBytes: number): Promise<bigint>;
  space(): Promise<[number, number]>;
  close(): void;
}

/**
 * full: no space left. damaged: the file has another size. gone: the file does not exist. absent: the folder does not exist. late: no answer in time.
 * denied: permission denied. busy: too many operations wait already.
 */
export type FileTrouble = "full" | "damaged" | "gone" | "absent" | "late" | "denied" | "busy" | "failed";
const troubles: Readonly<Record<string, FileTrouble>> = {
  ENOSPC: "full",
  EBADMSG: "damaged",
  ENOENT: "gone",
  ENODEV: "absent",
  ETIMEDOUT: "late",
  EACCES: "denied",
  EAGAIN: "busy",
};
const troubleNamed = (code: string | undefined): FileTrouble => troubles[code ?? ""] ?? "failed";
export const fileTroubleOf = (error: unknown): FileTrouble => troubleNamed((error as { code?: string }).code);

/** The number of files in progress at once; with a remote file system they mostly wait. */
const THREADS = 4;

export class SharedFiles {
  readonly folder: string;
  readonly #native: NativeShared;

  /** @param folder may be missing: each call checks again. @throws HOST_UNSUITABLE where the addon was not built. */
  constructor(folder: string) {
    this.folder = folder;
    const { NativeShared } = loadAddon<{ NativeShared: new (folder: string, threads: number) => NativeShared }>();
    this.#native = new NativeShared(toWire(folder), THREADS);
  }

  /** Returns the name of a path within the folder, one byte per character; undefined for a path elsewhere. */
  nameOf(path: string): string | undefined {
    const prefix = `${Buffer.from(this.folder).toString("latin1")}/`;
    if (!isAbsolute(path) || !path.startsWith(prefix)) return undefined;
    const name = path.slice(prefix.length);
    return name.split("/").some((part) => part === "" || part === "." || part === ".." || part.includes("\0")) ? undefined : name;
  }

  /** Writes the bytes of the ranges (local address, 0 and length of each) as they are now; later changes do not reach the file. */
  async write(name: string, words: BigUint64Array, timeoutMs: number): Promise<FileTrouble | undefined> {
    return this.#within(timeoutMs, this.#native.write(name, words, false));
  }
  writeSync(name: string, words: BigUint64Array, timeoutMs: number): FileTrouble | undefined {
    const code = this.#native.writeSync(name, words, false, timeoutMs);
    return code === undefined ? undefined : troubleNamed(code);
  }

  /** Reads a file of that size into the ranges; nothing is written there after the time limit. */
  async read(name: string, sizeBytes: number, words: BigUint64Array, timeoutMs: number): Promise<FileTrouble | undefined> {
    let bytes: Buffer | undefined;
    const trouble = await this.#within(
      timeoutMs,
      this.#native.read(name, sizeBytes).then((read) => void (bytes = read)),
    );
    if (trouble === undefined && bytes !== undefined) this.#native.place(bytes, words);
    return trouble;
  }
  readSync(name: string, sizeBytes: number, words: BigUint64Array, timeoutMs: number): FileTrouble | undefined {
    const bytes = this.#native.readSync(name, sizeBytes, timeoutMs);
    if (typeof bytes === "string") return troubleNamed(bytes);
    this.#native.place(bytes, words);
    return undefined;
  }

  /** A file that does not exist counts as removed. @throws the errors that `fileTroubleOf` names. */
  remove(name: string): Promise<void> {
    return this.#native.remove(name);
  }
  /** Returns the checksum of its bytes. @throws the errors that `fileTroubleOf` names. */
  verify(name: string, sizeBytes: number): Promise<bigint> {
    return this.#native.verify(name, sizeBytes);
  }
  /** Returns the total and the free bytes of its file system. @throws the errors that `fileTroubleOf` names. */
  space(): Promise<[number, number]> {
    return this.#native.space();
  }
  close(): void {
    this.#native.close();
  }

  async #within(timeoutMs: number, work: Promise<void>): Promise<FileTrouble | undefined> {
    const late = Promise.withResolvers<FileTrouble>();
    const timer = setTimeout(() => late.resolve("late"), timeoutMs);
    try {
      return await Promise.race([work.then(() => undefined, fileTroubleOf), late.promise]);
    } finally {
      clearTimeout(timer);
    }
  }
}
