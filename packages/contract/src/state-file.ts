// The small file in a home by which others on this machine find the server that runs there.
import { renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { isDiskFull } from "./failures.ts";

const AGAIN_MS = 2_000;

export type KeptStateFile = { remove(): void };

/**
 * Writes the file now, or as soon as a full disk has room for it: a server serves all the same. `onFull` is called once where it could not be
 * written at once.
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

/** Whole or not at all. False where a full disk takes neither a new file nor the text in place of an old one. */
export function writeStateFile(path: string, text: string): boolean {
  try {
    writeFileSync(`${path}.new`, text);
    renameSync(`${path}.new`, path);
    return true;
  } catch (error) {
    if (!isDiskFull(error)) throw error;
    rmSync(`${path}.new`, { force: true });
    // A server that was killed has left its file, one that was stopped its spare, and both have their blocks.
    return overwrite(path, text) || (overwrite(spareOf(path), text) && moved(spareOf(path), path));
  }
}

/** The file goes; its blocks stay under another name, for a start on a full disk. */
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
