// The parts of the host and of the home that every driver needs: programs, control groups, marks, folders.
import { mkdir, readFile, realpath, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Log } from "@svc/kit/log.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import { type Cgroups, openCgroups } from "./cgroup.ts";
import { type Marks, openMarks } from "./marks.ts";
import type { RuntimeName } from "./runtime.ts";

export type RuntimeOptions = {
  /** $SVC_HOME. */
  readonly home: string;
  readonly spawner: Spawner;
  readonly log: Log;
  /** envd's binary for probes; without it they run `sleep`. */
  readonly envd?: string | undefined;
  /** Absolute paths; a program without one is searched on PATH. */
  readonly programs?: { readonly runsc?: string | undefined; readonly runc?: string | undefined; readonly bwrap?: string | undefined };
};

export type Host = RuntimeOptions & {
  readonly home: string;
  /** The driver's own folder below the home, with the runtime's state. */
  readonly folder: string;
  readonly cgroups: Cgroups;
  readonly marks: Marks;
  /** Returns the ids that any driver of this home has marked. */
  allMarked(): Promise<Set<string>>;
  removeFolder(path: string): Promise<void>;
};

export async function openHost(name: RuntimeName, options: RuntimeOptions): Promise<Host> {
  await mkdir(options.home, { recursive: true });
  const home = await realpath(options.home);
  await forgetOtherHome(home);
  const folder = join(home, "run", name);
  await mkdir(folder, { recursive: true, mode: 0o711 });
  const marksOf = (driver: string) => openMarks(join(home, "run", "marks", driver), home);
  const marks = await marksOf(name);
  return {
    ...options,
    home,
    folder,
    cgroups: openCgroups(home),
    marks,
    async allMarked() {
      const all = await Promise.all((["gvisor", "runc", "bubblewrap"] as const).map(async (driver) => (await marksOf(driver)).list()));
      return new Set(all.flat());
    },
    removeFolder: (path) => rm(path, { recursive: true, force: true }),
  };
}

/** Removes the runtime state from a copied home: it describes the original home's sandboxes, and a driver that destroys them would end them there. */
async function forgetOtherHome(home: string): Promise<void> {
  const run = join(home, "run");
  const file = join(run, "home");
  const owner = await readFile(file, "utf8").catch(() => undefined);
  if (owner === home) return;
  if (owner !== undefined) await rm(run, { recursive: true, force: true });
  await mkdir(run, { recursive: true, mode: 0o711 });
  // If the disk is full, this file, which names the home, is missing until the next start.
  await writeFile(file, home).catch(() => undefined);
}
