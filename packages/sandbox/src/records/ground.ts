// The "ground" of a checkpoint: the template's files below the sandbox's own. The checkpoint does not contain them, so it must detect changes of them.
import { stat } from "node:fs/promises";
import { asFailure, fail } from "@svc/contract/failures.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import { z } from "zod";

export const groundShape = z.object({
  rootfs: z.string(),
  /** The folder's birth time. A template that set-up made again has other times but the same files. */
  madeMs: z.number(),
  /** `entries`: XXH128 over kind, mode, owner, size, link and path of each entry; `dated`: the same with the modification times. */
  entries: z.string(),
  dated: z.string(),
});
export type Ground = z.output<typeof groundShape>;

export interface Grounds {
  of(rootfs: string): Promise<Ground>;
  /** @throws SNAPSHOT_DAMAGED, with the folder's name, when the files have changed. */
  check(ground: Ground): Promise<void>;
}

/** A burst of resumes shares one scan. */
const FRESH_MS = 2_000;
const SCAN_TIMEOUT_MS = 5 * 60_000;

/** Computes both sums in one pass. Sizes and times of folders are left out: they depend on the file system and on the folders' entries. */
const scan = `set -e -o pipefail
exec 3> >(cut -z -f1 | xxh128sum >&2)
undated=$!
find . -xdev ! -type d -printf '%y %m %U:%G %s %l %p\\t%T@\\0' -o -printf '%y %m %U:%G %p\\t\\0' |
  LC_ALL=C sort -z | tee /dev/fd/3 | xxh128sum
exec 3>&-
wait $undated`;

function isGone(error: unknown): boolean {
  return ["ENOENT", "ENOTDIR"].includes((error as NodeJS.ErrnoException).code ?? "");
}

export function openGrounds(spawner: Spawner, nowMs: () => number = () => performance.now()): Grounds {
  const recent = new Map<string, { readonly atMs: number; readonly ground: Promise<Ground> }>();

  async function look(rootfs: string): Promise<Ground> {
    const { birthtimeMs } = await stat(rootfs);
    const { code, stdout, stderr } = await spawner.run(["bash", "-c", scan], { cwd: rootfs, timeoutMs: SCAN_TIMEOUT_MS, repeatable: true });
    const [dated, entries] = [stdout.slice(0, 32), stderr.slice(0, 32)];
    if (code !== 0 || !/^[0-9a-f]{32}$/.test(dated) || !/^[0-9a-f]{32}$/.test(entries))
      fail("INTERNAL", `the files of ${rootfs} could not be listed: ${stderr}`);
    return { rootfs, madeMs: birthtimeMs, entries, dated };
  }

  function of(rootfs: string): Promise<Ground> {
    const known = recent.get(rootfs);
    if (known !== undefined && nowMs() - known.atMs < FRESH_MS) return known.ground;
    const ground = look(rootfs);
    recent.set(rootfs, { atMs: nowMs(), ground });
    ground.catch(() => recent.delete(rootfs));
    return ground;
  }

  return {
    of,
    async check(kept) {
      const { rootfs } = kept;
      const found = await of(rootfs).catch((cause: unknown) => {
        // An interrupted scan says nothing about the files.
        if (!isGone(cause)) throw cause;
        return fail("SNAPSHOT_DAMAGED", `the template's files at ${rootfs} cannot be read: ${asFailure(cause).message}`, { cause });
      });
      const isSame = found.madeMs === kept.madeMs ? found.dated === kept.dated : found.entries === kept.entries;
      if (!isSame)
        fail(
          "SNAPSHOT_DAMAGED",
          `the template's files at ${rootfs} have changed since this checkpoint was made, and it would continue with a mixture; restore them, or create a new sandbox`,
        );
    },
  };
}
