// Checksums of checkpoints' files: 128-bit XXH3, against damage, not against forgery; whoever can write there is the node itself.
//
// A checkpoint shares large files with the one that its sandbox started from. Such a file was checksummed when it was written, and
// keeps that checksum: to compute it anew would cost a pause what it saves, and bless what has been damaged since.
import { stat } from "node:fs/promises";
import { join } from "node:path";
import type { Spawner } from "@svc/kit/spawn.ts";

const TIMEOUT_MS = 10 * 60_000;
/** Smaller ones are computed in no time. */
const REMEMBERED_BYTES = 2 ** 20;
const MAX_REMEMBERED = 10_000;

export type Sums = {
  /** By name, computed from what is there now. */
  computed(directory: string, names: readonly string[]): Promise<Map<string, string>>;
  /** The same, but of a file that was computed before, and was not written to since, what it was then. */
  known(directory: string, names: readonly string[]): Promise<Map<string, string>>;
};

export function openSums(spawner: Spawner): Sums {
  /** By what a file is under every name of it. */
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
      // The first stays: what is read later may be damaged by then.
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
