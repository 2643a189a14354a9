// One small file per sandbox and driver, written before anything else and removed last, so that the remains of a killed start are found.
import { mkdir, readdir, readFile, realpath, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

export type Marks = {
  /** `directory` is absolute. */
  set(runtimeID: string, directory: string): Promise<void>;
  /** Records that the sandbox runs in a precreated sandbox, under that one's id. */
  setPrecreated(runtimeID: string, precreatedID: string): Promise<void>;
  /** Returns the id of the precreated sandbox that this one took, or undefined. */
  precreatedOf(runtimeID: string): Promise<string | undefined>;
  /** Returns the directory given to `set`, or undefined. */
  directoryOf(runtimeID: string): Promise<string | undefined>;
  clear(runtimeID: string): Promise<void>;
  list(): Promise<string[]>;
};

const PRECREATED = "precreated ";

/** `home` is the real path of the home that owns the sandboxes. A mark in a copied home may still name a directory in the original home. */
export async function openMarks(folder: string, home: string): Promise<Marks> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  return {
    // The mark is not synced to disk: it must outlive this process, but after a power cut only directories are left.
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
