// Reads the mount table as this process sees it, and unmounts everything under a directory.
import { readFileSync } from "node:fs";
import { realpath } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { Spawner } from "@svc/kit/spawn.ts";

export type Mount = { readonly point: string; readonly kind: string; readonly source: string; readonly superOptions: string; readonly root: string };

export function readMounts(): Mount[] {
  const lines = readFileSync("/proc/self/mountinfo", "utf8").split("\n");
  return lines.flatMap((line) => {
    const [left, right] = line.split(" - ");
    const fields = left?.split(" ") ?? [];
    const [kind, source, superOptions] = right?.split(" ") ?? [];
    if (fields[4] === undefined || kind === undefined) return [];
    return [
      { point: octalDecoded(fields[4]), root: octalDecoded(fields[3] ?? "/"), kind, source: octalDecoded(source ?? ""), superOptions: superOptions ?? "" },
    ];
  });
}

/** Returns the mount points at or below a directory, the most recent mount first. */
export function mountsUnder(directory: string): string[] {
  return readMounts()
    .map(({ point }) => point)
    .filter((point) => point === directory || point.startsWith(`${directory}/`))
    .reverse();
}

const UNMOUNT_TIMEOUT_MS = 10_000;

/** Unmounts everything at or below a directory; a mount in use is detached and disappears with its last user. */
export async function unmountUnder(spawner: Spawner, directory: string): Promise<void> {
  const real = await resolveExisting(directory);
  for (const lazily of [false, true]) {
    const points = mountsUnder(real);
    if (points.length === 0) return;
    await spawner.run(["umount", ...(lazily ? ["-l"] : []), "--", ...points], { timeoutMs: UNMOUNT_TIMEOUT_MS, repeatable: true });
  }
  const left = mountsUnder(real);
  if (left.length > 0) fail("INTERNAL", `${left.join(", ")}: cannot be unmounted`);
}

/** The mount table has real paths; a missing directory is resolved through its nearest existing parent. */
async function resolveExisting(path: string): Promise<string> {
  try {
    return await realpath(path);
  } catch {
    const parent = dirname(path);
    return parent === path ? path : join(await resolveExisting(parent), basename(path));
  }
}

/** The kernel writes space, tab, newline and backslash in octal. */
function octalDecoded(field: string): string {
  return field.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}
