// One small file per sandbox and driver, written before anything else is made and removed last: so that a killed starter's leavings are found.
import { mkdir, readdir, readFile, realpath, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

export type Marks = {
  set(runtimeID: string, directory: string): Promise<void>;
  /** What bears this id is in another's place: in a precreated sandbox that it took. */
  setPrecreated(runtimeID: string, precreatedID: string): Promise<void>;
  /** The id of the precreated sandbox that this one took, or undefined. */
  precreatedOf(runtimeID: string): Promise<string | undefined>;
  /** The directory that was given at `set`, or undefined. */
  directoryOf(runtimeID: string): Promise<string | undefined>;
  clear(runtimeID: string): Promise<void>;
  list(): Promise<string[]>;
};

/** Directories are absolute. */
const PRECREATED = "precreated ";

/** `home`: the real path of the home whose sandboxes they are. A mark in a copy of a home may still name the directory in the home it was taken from. */
export async function openMarks(folder: string, home: string): Promise<Marks> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  return {
    // Not synced to disk: it must outlive this process, and after a power cut there is nothing left to find but directories.
    set: (runtimeID, directory) => writeFile(join(folder, runtimeID), directory, { mode: 0o600 }),
    setPrecreated: (runtimeID, precreatedID) => writeFile(join(folder, runtimeID), PRECREATED + precreatedID, { mode: 0o600 }),
    async precreatedOf(runtimeID) {
      const text = await readFile(join(folder, runtimeID), "utf8").catch(() => "");
      return text.startsWith(PRECREATED) ? text.slice(PRECREATED.length) : undefined;
    },
    async directoryOf(runtimeID) {
      const text = await readFile(join(folder, runtimeID), "utf8").catch(() => "");
      if (text.startsWith(PRECREATED)) return undefined;
      if (text === "" || !text.endsWith(`/sandboxes/${runtimeID}`)) return text === "" ? undefined : text;
      const owner = await realpath(dirname(dirname(text))).catch(() => "");
      return owner === home ? text : undefined;
    },
    clear: (runtimeID) => rm(join(folder, runtimeID), { force: true }),
    list: () => readdir(folder),
  };
}
