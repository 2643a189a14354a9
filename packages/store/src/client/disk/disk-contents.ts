// The files of a disk and their total size, oldest first, since the oldest files are evicted first.
import type { FileStore } from "./file-store.ts";
import { OVERHEAD_BYTES } from "./object-files.ts";

const READ_AT_ONCE = 16;

export class DiskContents {
  readonly #sizes = new Map<number, number>();
  usedBytes = 0;

  /** Removes damaged files, or passes them to `discard`. */
  static async read(files: FileStore, discard = (file: number) => files.remove(file)): Promise<DiskContents> {
    const contents = new DiskContents();
    const numbers = await files.list();
    for (let at = 0; at < numbers.length; at += READ_AT_ONCE) {
      const some = numbers.slice(at, at + READ_AT_ONCE);
      const sizes = await Promise.all(some.map(async (file) => files.sizeOf?.(file) ?? (await files.about(file).catch(() => undefined))?.sizeBytes));
      for (const [index, file] of some.entries()) {
        const sizeBytes = sizes[index];
        if (sizeBytes === undefined) await discard(file).catch(() => undefined);
        else contents.add(file, sizeBytes);
      }
    }
    return contents;
  }

  get count(): number {
    return this.#sizes.size;
  }

  has(file: number): boolean {
    return this.#sizes.has(file);
  }

  add(file: number, sizeBytes: number): void {
    this.#sizes.set(file, sizeBytes);
    this.usedBytes += sizeBytes + OVERHEAD_BYTES;
  }

  delete(file: number): void {
    const sizeBytes = this.#sizes.get(file);
    if (sizeBytes === undefined) return;
    this.#sizes.delete(file);
    this.usedBytes -= sizeBytes + OVERHEAD_BYTES;
  }

  files(): number[] {
    return [...this.#sizes.keys()];
  }

  /** Returns the oldest files that together have at least `bytes`, up to `most` files. */
  oldest(bytes: number, most: number): number[] {
    const chosen: number[] = [];
    let left = bytes;
    for (const [file, sizeBytes] of this.#sizes) {
      if (left <= 0 || chosen.length === most) break;
      chosen.push(file);
      left -= sizeBytes + OVERHEAD_BYTES;
    }
    return chosen;
  }
}
