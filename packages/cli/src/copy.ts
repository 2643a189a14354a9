// What upload and download share: the plan of a copy, its rules, its workers, its end on Ctrl-C.
import { randomBytes } from "node:crypto";
import { posix } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { AccessOptions } from "./access.ts";
import { remark } from "./complain.ts";
import { openProgress, type Progress } from "./progress.ts";

export type CopyOptions = AccessOptions & { force?: true; skipLinks?: true; user?: string; quiet?: true };

/** One entry to copy; `path` is relative to the root of the copy with slashes, "" for the root itself. */
export type CopyItem = { readonly path: string; readonly type: "file" | "directory"; readonly sizeBytes: number; readonly mode: number };

export type CopyPlan = {
  /** A directory stands before what is in it. */
  readonly items: CopyItem[];
  /** Links and special files, with what they are. */
  readonly refused: string[];
};

/** What stands at a target already; special: a device, a pipe, a socket. */
export type Standing = "file" | "directory" | "link" | "special" | undefined;

const MAX_ITEMS = 200_000;
const SHOWN = 5;
const CONCURRENCY = 4;

export function addItem(plan: CopyPlan, item: CopyItem): void {
  if (plan.items.length >= MAX_ITEMS)
    fail("PAYLOAD_TOO_LARGE", `more than ${MAX_ITEMS} files and directories; pack them instead, for example: tar c DIR | svc exec ID -- tar x`);
  plan.items.push(item);
}

/** Refuses links and special files, unless they may be left out. */
export function settleRefused(plan: CopyPlan, skipLinks: boolean): void {
  if (plan.refused.length === 0) return;
  const shown = `${plan.refused.slice(0, SHOWN).join(", ")}${plan.refused.length > SHOWN ? ` and ${plan.refused.length - SHOWN} more` : ""}`;
  if (!skipLinks) fail("INVALID_REQUEST", `nothing copied: ${shown}; only files and directories can be copied, --skip-links skips the others`);
  remark(`left out: ${shown}`);
}

/** Refuses a copy that would replace what stands there; looked at for every item before anything is written. */
export function settleConflicts(plan: CopyPlan, standing: (path: string) => Standing, target: (path: string) => string, force: boolean): void {
  const conflicts: string[] = [];
  for (const { path, type } of plan.items) {
    const there = standing(path);
    if (isFree(there, type, force)) continue;
    conflicts.push(`${target(path)} is a ${WORDS[there ?? "file"]} there`);
  }
  if (conflicts.length === 0) return;
  const shown = `${conflicts.slice(0, SHOWN).join(", ")}${conflicts.length > SHOWN ? ` and ${conflicts.length - SHOWN} more` : ""}`;
  fail("FILE_EXISTS", `nothing copied: ${shown}${force ? "; only regular files are replaced" : "; --force replaces regular files"}`);
}

const WORDS = { file: "file", directory: "directory", link: "symbolic link", special: "special file" } as const;

/** Directories merge; only a regular file is ever replaced, and a link is neither followed nor replaced. */
export function isFree(there: Standing, type: CopyItem["type"], force: boolean): boolean {
  if (there === undefined) return true;
  return there === type && (type === "directory" || force);
}

/** Copies the plan's files, a few at a time; the first failure ends the rest. */
export async function copyFiles(
  plan: CopyPlan,
  title: string,
  quiet: boolean,
  outer: AbortSignal,
  copy: (item: CopyItem, progress: Progress, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const files = plan.items.filter(({ type }) => type === "file");
  const progress = openProgress(
    title,
    files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0),
    files.length,
    quiet,
  );
  const failed = new AbortController();
  const signal = AbortSignal.any([outer, failed.signal]);
  const queue = files.values();
  let failure: unknown;
  const worker = async () => {
    for (const item of queue) {
      if (signal.aborted) return;
      try {
        await copy(item, progress, signal);
        progress.fileDone();
      } catch (error) {
        failure ??= error;
        failed.abort();
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(CONCURRENCY, files.length) }, worker));
  progress.close(failure === undefined && !outer.aborted);
  outer.throwIfAborted();
  if (failure !== undefined) throw failure;
}

const EXIT_INTERRUPTED = 130;

/** Ctrl-C and SIGTERM end the copy and let it clear its temporary files away. */
export async function interruptible(copy: (signal: AbortSignal) => Promise<void>): Promise<number> {
  const interrupted = new AbortController();
  const abort = () => interrupted.abort(new Error("interrupted"));
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, abort);
  try {
    await copy(interrupted.signal);
    return 0;
  } catch (error) {
    if (!interrupted.signal.aborted) throw error;
    remark("svc: interrupted; files copied whole before stay");
    return EXIT_INTERRUPTED;
  } finally {
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.off(signal, abort);
  }
}

/** Beside the target, so that the rename stays on one file system. */
export function temporaryName(path: string): string {
  return posix.join(posix.dirname(path), `.${posix.basename(path).slice(0, 200)}.svc-${randomBytes(6).toString("hex")}`);
}
