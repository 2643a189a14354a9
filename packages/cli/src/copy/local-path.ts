// Paths on this machine, whose names may contain bytes (byte-text.ts): walks trees, and checks targets before they are written.
import { closeSync, constants, lstatSync, openSync, readdirSync, readlinkSync, readSync, realpathSync, type Stats, statSync } from "node:fs";
import { join, posix } from "node:path";
import { bytesOfText, textOfBytes } from "@svc/contract/byte-text.ts";
import { fail } from "@svc/contract/failures.ts";
import { addEntry, type CopyItem, type CopyPlan, type LinkRules, openPlan, type Standing } from "./copy.ts";

/** Returns all entries below `root`, which is not a link itself. */
export function walkLocal(root: string, rules: LinkRules): CopyPlan {
  const plan = openPlan();
  const directories: string[] = [];
  const add = (path: string, shown: string) => {
    const item = itemAt(path, bytesOfText(shown));
    if (addEntry(plan, item, shown, rules) && item.type === "directory") directories.push(path);
  };
  add("", root);
  for (const directory of directories) {
    const at = join(root, directory);
    for (const name of readdirSync(bytesOfText(at), { encoding: "buffer" }).map(textOfBytes).sort()) {
      add(posix.join(directory, name), join(at, name));
    }
  }
  return plan;
}

function itemAt(path: string, at: Buffer): CopyItem | { path: string; type: "special" } {
  const stats = lstatSync(at);
  const type = typeOf(stats);
  if (type === "special") return { path, type };
  if (type === "file" && stats.size === 0 && hasContent(at)) {
    const name = textOfBytes(at);
    fail(
      "INVALID_REQUEST",
      `nothing copied: ${name} reports a size of 0 but has content, as files of /proc do: send it with cat ${name} | svc upload ID - PATH`,
    );
  }
  const item = { path, type, sizeBytes: type === "file" ? stats.size : 0, mode: stats.mode & 0o777 };
  return type === "link" ? { ...item, target: textOfBytes(readlinkSync(at, "buffer")) } : item;
}

/** A file that cannot be opened is left to tar, whose message says why. */
function hasContent(at: Buffer): boolean {
  try {
    const file = openSync(at, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      return readSync(file, Buffer.alloc(1), 0, 1, 0) > 0;
    } finally {
      closeSync(file);
    }
  } catch {
    return false;
  }
}

function typeOf(stats: Stats): "file" | "directory" | "link" | "special" {
  if (stats.isSymbolicLink()) return "link";
  if (stats.isDirectory()) return "directory";
  return stats.isFile() ? "file" : "special";
}

export function standingLocal(path: string): Standing {
  const stats = lstatSync(bytesOfText(path), { throwIfNoEntry: false });
  return stats === undefined ? undefined : typeOf(stats);
}

export function isDirectory(path: string): boolean {
  return statSync(bytesOfText(path), { throwIfNoEntry: false })?.isDirectory() === true;
}

export function realPath(path: string): string {
  // Only the native call takes a name's bytes as they are.
  return textOfBytes(realpathSync.native(bytesOfText(path), "buffer"));
}
