// The small file in a home by which others on this machine find the server that runs there.
import { renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { isDiskFull } from "@svc/contract/failures.ts";

/** Whole or not at all. False where a full disk takes neither a new file nor the text in place of an old one: a server serves all the same. */
export function writeStateFile(path: string, text: string): boolean {
  try {
    writeFileSync(`${path}.new`, text);
    renameSync(`${path}.new`, path);
    return true;
  } catch (error) {
    if (!isDiskFull(error)) throw error;
    rmSync(`${path}.new`, { force: true });
    // A server that was killed has left its file, and the file its blocks.
    return overwrite(path, text);
  }
}

function overwrite(path: string, text: string): boolean {
  try {
    writeFileSync(path, text.padEnd(statSync(path).size), { flag: "r+" });
    return true;
  } catch {
    return false;
  }
}
