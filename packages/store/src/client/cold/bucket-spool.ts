// Local copies of a bucket's files in a folder of this host: written there before an upload, and fetched again for readers.
import { mkdir, open, readdir, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import type { About } from "../disk/file-store.ts";
import { ObjectFiles } from "../disk/object-files.ts";

const COMING = "coming";
const nameOf = (file: number) => file.toString(16).padStart(8, "0");

export class BucketSpool {
  readonly folder: string;
  readonly #files: ObjectFiles;
  readonly #mostBytes: number;
  /** Copies that may be dropped, oldest first. */
  readonly #copies = new Map<number, number>();
  #bytes = 0;
  #coming = 0;

  private constructor(folder: string, files: ObjectFiles, mostBytes: number) {
    this.folder = folder;
    this.#files = files;
    this.#mostBytes = mostBytes;
  }

  /**
   * Opens the folder empty: files of an earlier process are in the bucket, or were never acknowledged.
   * @throws SETTING_INVALID where another process uses the folder.
   */
  static async open(folder: string, mostBytes: number): Promise<BucketSpool> {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const files = ObjectFiles.open(folder);
    try {
      for (const name of await readdir(folder)) if (/^[0-9a-f]{8}$/.test(name)) await rm(join(folder, name), { force: true });
      await rm(join(folder, COMING), { recursive: true, force: true });
      await mkdir(join(folder, COMING), { mode: 0o700 });
      await files.list();
    } catch (error) {
      files.close();
      throw error;
    }
    return new BucketSpool(folder, files, mostBytes);
  }

  pathOf(file: number): string {
    return join(this.folder, nameOf(file));
  }

  /** Writes like `ObjectFiles.write`; the copy stays until `keep` or `drop` is called for it. */
  async write(file: number, words: BigUint64Array, about: About, expected: bigint | undefined): Promise<bigint> {
    const checksum = await this.#files.write(file, words, about, expected);
    await this.#files.settle(file);
    return checksum;
  }

  /** Creates a copy with the bytes that `fill` writes; it becomes visible once `fill` has succeeded. */
  async bring(file: number, fill: (write: (bytes: Buffer) => Promise<void>) => Promise<void>): Promise<void> {
    const path = join(this.folder, COMING, `${nameOf(file)}.${this.#coming++}`);
    const to = await open(path, "wx", 0o600);
    try {
      await fill(async (bytes) => {
        await to.appendFile(bytes);
      });
      await to.close();
      await rename(path, this.pathOf(file));
    } catch (error) {
      await to.close().catch(() => undefined);
      await rm(path, { force: true });
      throw error;
    }
    await this.keep(file);
  }

  /** Lets the copy be dropped when others need its space. */
  async keep(file: number): Promise<void> {
    const found = await stat(this.pathOf(file)).catch(() => undefined);
    if (found === undefined) return;
    this.#forget(file);
    this.#copies.set(file, found.size);
    this.#bytes += found.size;
    for (const other of [...this.#copies.keys()]) {
      if (this.#bytes <= this.#mostBytes) return;
      // The newest copy is the one being read.
      if (other !== file) await this.drop(other);
    }
  }

  async has(file: number): Promise<boolean> {
    return (await stat(this.pathOf(file)).catch(() => undefined)) !== undefined;
  }

  async drop(file: number): Promise<void> {
    this.#forget(file);
    await rm(this.pathOf(file), { force: true });
  }

  /** Drops every copy that may be dropped. */
  async dropAll(): Promise<void> {
    for (const file of [...this.#copies.keys()]) await this.drop(file);
  }

  /** @throws the errors that `troubleOf` names; damaged where the copy's bytes are not those that were stored. */
  verify(file: number): Promise<void> {
    return this.#files.verify(file);
  }

  close(): void {
    this.#files.close();
  }

  #forget(file: number): void {
    this.#bytes -= this.#copies.get(file) ?? 0;
    this.#copies.delete(file);
  }
}
