// The runsc programs of a home, one per content hash, so that the program that started a sandbox also controls it and restores its memory.
//
// gVisor guarantees no memory format across versions: after an upgrade a paused sandbox still needs the old program.
import { access, copyFile, link, mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { syncAll } from "@svc/kit/sync.ts";
import type { Host } from "./host.ts";
import { findProgram } from "./programs.ts";

// $SVC_HOME/bin/runsc-<hash of its content>
// DIRECTORY/runsc      the name below bin, in a sandbox's directory and in a checkpoint of memory

const NOTE = "runsc";
const PREFIX = "runsc-";

export const programPath = (home: string, name: string): string => join(home, "bin", name);
/** The file name of a program, derived from its content. */
export const PROGRAM_NAME = /^runsc-[0-9a-f]{16}$/;

export type RunscPrograms = {
  /** Returns the program for new sandboxes. */
  current(): Promise<string>;
  /** Returns the program noted in a sandbox's directory or a checkpoint of memory, or the current one if there is no note. */
  of(directory: string): Promise<string>;
  note(directory: string, program: string): Promise<void>;
  /** Removes the programs that none of these directories names, except the current one. */
  sweep(directories: readonly string[]): Promise<void>;
};

export function openRunscPrograms(host: Host): RunscPrograms {
  const folder = join(host.home, "bin");
  let kept: Promise<string> | undefined;

  async function keep(): Promise<string> {
    const program = await findProgram("runsc", host.programs?.runsc);
    const hash = (await host.spawner.check(["xxh128sum", "--", program], { repeatable: true })).slice(0, 16);
    const path = programPath(host.home, PREFIX + hash);
    if (await isThere(path)) return path;
    await mkdir(folder, { recursive: true, mode: 0o711 });
    const half = `${path}.${process.pid}`;
    await rm(half, { force: true });
    // Set-up installs a new version as a new file, so the linked file never changes.
    await link(program, half).catch(() => copyFile(program, half));
    // A checkpoint that survives a power cut needs the program that wrote it.
    await syncAll([half]);
    await rename(half, path);
    await syncAll([folder]);
    return path;
  }

  const current = () => {
    kept ??= keep().catch((error: unknown) => {
      kept = undefined;
      throw error;
    });
    return kept;
  };

  return {
    current,
    async of(directory) {
      const name = await nameIn(directory);
      if (name === undefined) return current();
      const path = programPath(host.home, name);
      if (await isThere(path)) return path;
      host.log.warn({ directory, program: name }, "the runsc that a sandbox ran is gone; using the present one");
      return current();
    },
    note: (directory, program) => writeFile(join(directory, NOTE), basename(program)),
    async sweep(directories) {
      const named = new Set([basename(await current()), ...(await Promise.all(directories.map(nameIn)))]);
      for (const name of await readdir(folder)) if (name.startsWith(PREFIX) && !named.has(name)) await rm(join(folder, name), { force: true });
    },
  };
}

async function nameIn(directory: string): Promise<string | undefined> {
  const text = await readFile(join(directory, NOTE), "utf8").catch(() => "");
  return PROGRAM_NAME.test(text) ? text : undefined;
}

const isThere = (path: string) =>
  access(path).then(
    () => true,
    () => false,
  );
