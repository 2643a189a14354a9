// The common parts of upload and download: the plan of a copy, its rules, and its end on Ctrl-C.
import { randomBytes } from "node:crypto";
import { posix } from "node:path";
import { shownText } from "@svc/contract/byte-text.ts";
import { Failure, fail } from "@svc/contract/failures.ts";
import type { AccessOptions } from "../access/access.ts";
import { remark } from "../output/complain.ts";
import { staysInside } from "./links.ts";

export type CopyOptions = AccessOptions & { force?: true; skipLinks?: true; skipOutsideLinks?: true; user?: string; quiet?: true };

/** One entry to copy; `path` is relative to the root of the copy with slashes, "" for the root itself. Names may contain bytes (byte-text.ts). */
export type CopyItem = {
  readonly path: string;
  readonly type: "file" | "directory" | "link";
  readonly sizeBytes: number;
  readonly mode: number;
  /** The target of a link, as it is written in the link. */
  readonly target?: string;
};

export type CopyPlan = {
  /** A directory precedes its entries. */
  readonly items: CopyItem[];
  /** Descriptions of the entries that cannot be copied. */
  readonly refused: string[];
  /** Descriptions of the entries that the user chose to skip. */
  readonly skipped: string[];
};

/** The kind of entry that exists at a target; special means a device, a pipe or a socket. */
export type Standing = "file" | "directory" | "link" | "special" | undefined;

const MAX_ITEMS = 200_000;
const SHOWN = 5;

export function openPlan(): CopyPlan {
  return { items: [], refused: [], skipped: [] };
}

/** Adds an entry to the list of the plan that it belongs to; returns false if it is not to be copied. */
export function addEntry(plan: CopyPlan, item: CopyItem | { path: string; type: "special" }, shown: string, rules: LinkRules): boolean {
  if (item.type === "special") return leaveOut(plan, `${shown} is a special file`, rules.skipLinks === true);
  if (item.type === "link") {
    const { path, target = "" } = item;
    if (rules.skipLinks === true) return leaveOut(plan, `${shown} is a symbolic link`, true);
    const isOutside = !staysInside(path, target);
    if (isOutside && (rules.mustStayInside || rules.skipOutsideLinks === true))
      return leaveOut(plan, `${shown} is a symbolic link out of what is copied, to ${target}`, rules.skipOutsideLinks === true);
  }
  if (plan.items.length >= MAX_ITEMS)
    fail("PAYLOAD_TOO_LARGE", `more than ${MAX_ITEMS} files and directories; pack them instead, for example: tar c DIR | svc exec ID -- tar x`);
  plan.items.push(item);
  return true;
}

export type LinkRules = Pick<CopyOptions, "skipLinks" | "skipOutsideLinks"> & {
  /** Refuses links that lead out of the tree: on this machine they would lead to files that do not come from the sandbox. */
  readonly mustStayInside: boolean;
};

function leaveOut(plan: CopyPlan, description: string, isSkipped: boolean): false {
  (isSkipped ? plan.skipped : plan.refused).push(shownText(description));
  return false;
}

/** Fails if there are entries that cannot be copied, and reports the skipped ones. */
export function settleRefused(plan: CopyPlan): void {
  if (plan.refused.length > 0) {
    const way = plan.refused.some((text) => text.includes("out of what is copied")) ? "--skip-outside-links skips such links, " : "";
    fail("INVALID_REQUEST", `nothing copied: ${listed(plan.refused)}; ${way}--skip-links skips all links and special files`);
  }
  if (plan.skipped.length > 0) remark(`left out: ${listed(plan.skipped)}`);
}

function listed(descriptions: readonly string[]): string {
  return `${descriptions.slice(0, SHOWN).join(", ")}${descriptions.length > SHOWN ? ` and ${descriptions.length - SHOWN} more` : ""}`;
}

/** Fails if the copy would replace existing entries; `standing` is undefined where nothing exists. */
export function settleConflicts(conflicts: readonly { readonly path: string; readonly standing: Standing }[], force: boolean): void {
  const descriptions = conflicts.flatMap(({ path, standing }) => (standing === undefined ? [] : [`${shownText(path)} is a ${KINDS[standing]} there`]));
  if (descriptions.length === 0) return;
  fail(
    "FILE_EXISTS",
    `nothing copied: ${listed(descriptions)}${force ? "; only regular files are replaced, and links by links" : "; --force replaces regular files, and links by links"}`,
  );
}

const KINDS = { file: "file", directory: "directory", link: "symbolic link", special: "special file" } as const;

/** Directories are merged; with force a file replaces a file and a link a link. Links are never followed. */
export function isFree(there: Standing, type: CopyItem["type"], force: boolean): boolean {
  if (there === undefined) return true;
  return there === type && (type === "directory" || force);
}

/** Returns the number of files and of the bytes in them. */
export function sizesOf(plan: CopyPlan): { files: number; bytes: number } {
  const files = plan.items.filter(({ type }) => type !== "directory");
  return { files: files.length, bytes: files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0) };
}

/** The agent of a sandbox that was paused by an earlier release does not support archives. */
export function olderAgent(error: unknown, id: string): unknown {
  if (!(error instanceof Failure) || !error.message.startsWith("envd has nothing at ")) return error;
  return new Failure(
    "INVALID_REQUEST",
    `sandbox ${id} runs the agent of an earlier release, which copies no trees: pack them instead, for example: tar c DIR | svc exec ${id} -- tar x`,
    { cause: error },
  );
}

const EXIT_INTERRUPTED = 130;

/** Ctrl-C and SIGTERM abort the copy, which then removes its temporary files. */
export async function interruptible(copy: (signal: AbortSignal) => Promise<void>): Promise<number> {
  const interrupted = new AbortController();
  const abort = () => interrupted.abort(new Error("interrupted"));
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, abort);
  try {
    await copy(interrupted.signal);
    return 0;
  } catch (error) {
    if (!interrupted.signal.aborted) throw error;
    remark("svc: interrupted; nothing was written");
    return EXIT_INTERRUPTED;
  } finally {
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.off(signal, abort);
  }
}

/** The temporary file is next to the target, so that the rename stays on one file system. */
export function temporaryName(path: string): string {
  return posix.join(posix.dirname(path), `.${posix.basename(path).slice(0, 200)}.svc-${randomBytes(6).toString("hex")}`);
}
