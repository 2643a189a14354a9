// Checksums of checkpoints' files: 128-bit XXH3, against damage and not against forgery, since only the node can write there.
//
// A checkpoint shares large files with the one that its sandbox started from. Such a file keeps the checksum of when it was written:
// another computation would take as long as the shared file saves, and would accept damage that happened since.
import { stat } from "node:fs/promises";
import { join } from "node:path";
import type { Spawner } from "@svc/kit/spawn.ts";

const TIMEOUT_MS = 10 * 60_000;
/** Smaller files are not worth remembering. */
const REMEMBERED_BYTES = 2 ** 20;
const MAX_REMEMBERED = 10_000;

export type Sums = {
  /** Computes the checksums of the files' present contents, by name. */
  computed(directory: string, names: readonly string[]): Promise<Map<string, string>>;
  /** As `computed`, but uses the earlier checksum of a file that was not written to since. */
  known(directory: string, names: readonly string[]): Promise<Map<string, string>>;
};

export function openSums(spawner: Spawner): Sums {
  /** Checksums by file identity, which is the same under all hard links of a file. */
  const remembered = new Map<string, string>();

  async function identityOf(path: string): Promise<string | undefined> {
    const { dev, ino, size, mtimeNs } = await stat(path, { bigint: true });
    return size < REMEMBERED_BYTES ? undefined : `${dev}:${ino}:${size}:${mtimeNs}`;
  }

  async function computed(directory: string, names: readonly string[]): Promise<Map<string, string>> {
    if (names.length === 0) return new Map();
    const before = await Promise.all(names.map((name) => identityOf(join(directory, name)).catch(() => undefined)));
    const output = await spawner.check(["xxh128sum", "--", ...names], { cwd: directory, timeoutMs: TIMEOUT_MS, repeatable: true });
    const lines = output.trim().split("\n");
    const sums = new Map(lines.map((line) => [line.slice(34), line.slice(0, 32)] as const));
    for (const [index, name] of names.entries()) {
      const [identity, sum] = [before[index], sums.get(name)];
      // The first checksum is kept: a later one may already include damage.
      if (identity === undefined || sum === undefined || remembered.has(identity)) continue;
      if (remembered.size >= MAX_REMEMBERED) for (const oldest of [...remembered.keys()].slice(0, MAX_REMEMBERED / 2)) remembered.delete(oldest);
      remembered.set(identity, sum);
    }
    return sums;
  }

  return {
    computed,
    async known(directory, names) {
      const identities = await Promise.all(names.map((name) => identityOf(join(directory, name))));
      const sums = new Map<string, string>();
      for (const [index, name] of names.entries()) {
        const sum = remembered.get(identities[index] ?? "");
        if (sum !== undefined) sums.set(name, sum);
      }
      const missing = names.filter((name) => !sums.has(name));
      for (const [name, sum] of await computed(directory, missing)) sums.set(name, sum);
      return sums;
    },
  };
}
