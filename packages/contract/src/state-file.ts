// The small file in a home directory by which programs on this machine find the server that runs there.
import { renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { isDiskFull } from "./failures.ts";

const AGAIN_MS = 2_000;

export type KeptStateFile = { remove(): void };

/**
 * Writes the file now, or as soon as a full disk has space for it; the server starts in both cases. `onFull` is called once if the file could not be written at
 * once.
 */
export function keepStateFile(path: string, text: string, onFull: () => void): KeptStateFile {
  let again: NodeJS.Timeout | undefined;
  if (!writeStateFile(path, text)) {
    onFull();
    again = setInterval(() => {
      if (writeStateFile(path, text)) clearInterval(again);
    }, AGAIN_MS).unref();
  }
  return {
    remove() {
      clearInterval(again);
      removeStateFile(path);
    },
  };
}

/** Writes the file completely or not at all. Returns false if a full disk has space for neither a new file nor the text in place of an old one. */
export function writeStateFile(path: string, text: string): boolean {
  try {
    writeFileSync(`${path}.new`, text);
    renameSync(`${path}.new`, path);
    return true;
  } catch (error) {
    if (!isDiskFull(error)) throw error;
    rmSync(`${path}.new`, { force: true });
    // A killed server leaves its file, and a stopped one its spare. Either has blocks that can be overwritten even on a full disk.
    return overwrite(path, text) || (overwrite(spareOf(path), text) && moved(spareOf(path), path));
  }
}

/** Removes the file but keeps its blocks under another name, for a start on a full disk. */
export function removeStateFile(path: string): void {
  if (!moved(path, spareOf(path))) rmSync(path, { force: true });
}

const spareOf = (path: string) => `${path}.spare`;

function overwrite(path: string, text: string): boolean {
  try {
    writeFileSync(path, text.padEnd(statSync(path).size), { flag: "r+" });
    return true;
  } catch {
    return false;
  }
}

function moved(from: string, to: string): boolean {
  try {
    renameSync(from, to);
    return true;
  } catch {
    return false;
  }
}
