// One control group per sandbox, all under one parent per home: limits, usage, kills by the memory limit, and the removal of all members.
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { mkdir, readdir, readFile, rmdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { keepGreedy } from "./cgroup-greedy.ts";
import {
  type CgroupLayout,
  controllerNames,
  findCgroups,
  freezing,
  type GroupLimits,
  keyedValue,
  limitSettings,
  type Setting,
  weightSetting,
} from "./cgroup-layout.ts";
import { keepShare, shareParts } from "./cgroup-share.ts";
import { eventually, signal } from "./process.ts";
import type { LimitHits, Limits, Usage } from "./runtime.ts";

export type Cgroups = {
  readonly layout: CgroupLayout;
  /** The group's path below each hierarchy's mount point, as an OCI `cgroupsPath`. */
  pathOf(runtimeID: string): string;
  create(runtimeID: string, limits: Limits, group: GroupLimits): Promise<void>;
  /** Files into which a process writes its pid to put itself and all its children under the limits. */
  entrances(runtimeID: string): string[];
  /** Entrances for programs that set a sandbox up and are not part of it: without limits, but killed with it. */
  starterEntrances(runtimeID: string): string[];
  usage(runtimeID: string): Promise<Omit<Usage, "diskBytes">>;
  /** The files that say how much memory is used, and of which kind it is. */
  memoryFiles(runtimeID: string): { readonly usage: string; readonly stat: string };
  /** Returns the number of processes that the host's kernel killed here at the memory limit, and of forks that it refused. */
  limitHits(runtimeID: string): Promise<LimitHits>;
  /** Freezes or thaws all members, and returns when the kernel confirms it. */
  setFrozen(runtimeID: string, frozen: boolean): Promise<void>;
  /** Says whether the group is frozen or about to be. */
  isFrozen(runtimeID: string): Promise<boolean>;
  /** Kills every member and removes the group from every hierarchy; succeeds if there is none. */
  remove(runtimeID: string): Promise<void>;
  list(): Promise<string[]>;
  /** Removes the parent; the groups below must be gone. */
  close(): Promise<void>;
};

const KILL_BOUND_MS = 10_000;
/** The kernel may report a group as busy for a moment after its last member has ended. */
const QUICK_REMOVALS = 2;
/** A member that waits for a device cannot be frozen before the device answers. */
const FREEZE_BOUND_MS = 10_000;
/** Suffix of a group next to the sandbox's own; runc accepts only an empty group for its sandbox. */
const STARTER = ".starter";

/** `realHome` has no symbolic links, so nodes with different homes never share a parent, and one home always has the same parent. */
export function parentNameOf(realHome: string): string {
  return `svc-${createHash("sha256").update(realHome).digest("hex").slice(0, 8)}`;
}

export function openCgroups(realHome: string): Cgroups {
  const layout = findCgroups();
  const parent = parentNameOf(realHome);
  const roots = [...new Set([...layout.roots.values(), layout.accounting, layout.freezer].filter((root) => root !== undefined))];
  const weights: { close(): void }[] = [];
  const missing = controllerNames.filter((name) => !layout.roots.has(name));
  const starterRoot = layout.roots.get("pids");
  const everywhere = (runtimeID: string) => [
    ...layout.everyRoot.map((root) => join(root, parent, runtimeID)),
    ...(starterRoot === undefined ? [] : [join(starterRoot, parent, runtimeID + STARTER)]),
  ];
  /** The groups whose members are all processes of the sandbox, including its starters. */
  const counting = (runtimeID: string) =>
    starterRoot === undefined ? everywhere(runtimeID) : [join(starterRoot, parent, runtimeID), join(starterRoot, parent, runtimeID + STARTER)];
  const atOnce = (root: string | undefined, runtimeID: string, file: string) => {
    try {
      return readFileSync(join(root ?? "/nowhere", parent, runtimeID, file), "utf8");
    } catch {
      return "";
    }
  };
  const at = (root: string | undefined, runtimeID: string, file: string) => readFile(join(root ?? "/nowhere", parent, runtimeID, file), "utf8").catch(() => "");

  async function create(runtimeID: string, limits: Limits, group: GroupLimits): Promise<void> {
    if (missing.length > 0)
      fail("HOST_UNSUITABLE", `limits need the cgroup controllers ${missing.join(", ")}, which this host does not offer; see \`svc doctor\``);
    if (layout.version === 2) await delegate(roots[0] as string, parent);
    await Promise.all(
      [...roots.map((root) => join(root, parent, runtimeID)), join(starterRoot as string, parent, runtimeID + STARTER)].map((path) =>
        mkdir(path, { recursive: true }),
      ),
    );
    if (weights.length === 0) {
      await put(parent, weightSetting(layout.version, shareParts.yielding));
      if (weights.length === 0) weights.push(keepShare(layout, parent), keepGreedy(layout, parent));
    }
    for (const setting of limitSettings(layout.version, limits, group)) await put(join(parent, runtimeID), setting);
  }

  async function put(group: string, { controller, file, value, optional }: Setting): Promise<void> {
    await writeFile(join(layout.roots.get(controller) as string, group, file), value).catch((error: Error) => {
      if (optional !== true) fail("HOST_UNSUITABLE", `${file} = ${value} is refused by the kernel: ${error.message}`, { cause: error });
    });
  }

  async function setFrozen(runtimeID: string, frozen: boolean): Promise<void> {
    const root = layout.freezer ?? fail("HOST_UNSUITABLE", "this host has no cgroup freezer: boot with the freezer controller on");
    const { file, value, seenIn, seen } = freezing(layout.version, frozen);
    await writeFile(join(root, parent, runtimeID, file), value, { flag: "r+" });
    if (await eventually(async () => seen.test(await at(root, runtimeID, seenIn)), FREEZE_BOUND_MS)) return;
    if (frozen) await writeExisting(join(root, parent, runtimeID, file), freezing(layout.version, false).value);
    fail("TIMED_OUT", `sandbox ${runtimeID} could not be ${frozen ? "frozen" : "thawed"} within ${FREEZE_BOUND_MS} ms (waiting for a device?)`);
  }

  async function remove(runtimeID: string): Promise<void> {
    const groups = everywhere(runtimeID).filter((path) => existsSync(path));
    if (groups.length === 0) return;
    // This prevents new forks, so that the kill loop below terminates.
    await Promise.all(counting(runtimeID).map((path) => writeExisting(join(path, "pids.max"), "0")));
    if (layout.version === 2) await Promise.all(groups.map((path) => writeExisting(join(path, "cgroup.kill"), "1")));
    // Every member is in the hierarchy that counts processes, so the other hierarchies and nested groups are only searched if a group stays
    // busy.
    let failedRemovals = 0;
    let isEmpty = false;
    const gone = await eventually(async () => {
      const isThorough = failedRemovals >= QUICK_REMOVALS;
      const left = isThorough ? await membersOf(groups, readTree) : await membersOf(counting(runtimeID), readMembers);
      isEmpty = left.size === 0;
      for (const pid of left) signal(pid, "SIGKILL");
      // In version 1 a frozen process dies only when it is thawed.
      if (layout.freezer !== undefined) {
        const { file, value } = freezing(layout.version, false);
        await writeExisting(join(layout.freezer, parent, runtimeID, file), value);
      }
      if (!isEmpty) return false;
      if ((await Promise.all(groups.map(isThorough ? removeTree : removeGroup))).every(Boolean)) return true;
      failedRemovals++;
      return false;
    }, KILL_BOUND_MS);
    if (gone) return;
    if (!isEmpty) fail("INTERNAL", `sandbox ${runtimeID}: processes outlive SIGKILL for ${KILL_BOUND_MS} ms (waiting for a device?)`);
    fail("INTERNAL", `sandbox ${runtimeID}: its control groups stay busy`);
  }

  return {
    layout,
    pathOf: (runtimeID) => `/${parent}/${runtimeID}`,
    create,
    entrances: (runtimeID) => roots.map((root) => join(root, parent, runtimeID, "cgroup.procs")),
    starterEntrances: (runtimeID) => (starterRoot === undefined ? [] : [join(starterRoot, parent, runtimeID + STARTER, "cgroup.procs")]),
    async usage(runtimeID) {
      const memory = layout.roots.get("memory");
      const one = layout.version === 1;
      // Every sandbox is measured every few seconds: synchronous reads of these files cost a thirtieth of asynchronous ones.
      const cpu = atOnce(layout.accounting, runtimeID, one ? "cpuacct.usage" : "cpu.stat");
      const current = atOnce(memory, runtimeID, one ? "memory.usage_in_bytes" : "memory.current");
      const stat = atOnce(memory, runtimeID, "memory.stat");
      const limit = atOnce(memory, runtimeID, one ? "memory.limit_in_bytes" : "memory.max");
      const pids = atOnce(layout.roots.get("pids"), runtimeID, "pids.current");
      // The kernel evicts inactive file pages under pressure, so they do not count as used memory.
      const idleFiles = keyedValue(stat, one ? "total_inactive_file" : "inactive_file");
      return {
        cpuNs: one ? Number(cpu) : keyedValue(cpu, "usage_usec") * 1000,
        memoryBytes: Math.max(0, Number(current) - idleFiles),
        cacheBytes: keyedValue(stat, one ? "total_cache" : "file"),
        memoryLimitBytes: Number(limit.trim() === "max" ? 0 : limit),
        pids: Number(pids),
      };
    },
    setFrozen,
    async isFrozen(runtimeID) {
      const text = await at(layout.freezer, runtimeID, freezing(layout.version, true).file);
      return /^(1|FROZEN|FREEZING)$/.test(text.trim());
    },
    memoryFiles(runtimeID) {
      const folder = join(layout.roots.get("memory") ?? "/nowhere", parent, runtimeID);
      return { usage: join(folder, layout.version === 1 ? "memory.usage_in_bytes" : "memory.current"), stat: join(folder, "memory.stat") };
    },
    async limitHits(runtimeID) {
      const [memory, pids] = await Promise.all([
        at(layout.roots.get("memory"), runtimeID, layout.version === 1 ? "memory.oom_control" : "memory.events"),
        at(layout.roots.get("pids"), runtimeID, "pids.events"),
      ]);
      return { memoryKills: keyedValue(memory, "oom_kill"), memoryRefusals: 0, taskRefusals: keyedValue(pids, "max") };
    },
    remove,
    async list() {
      const found = await Promise.all(layout.everyRoot.map((root) => readdir(join(root, parent), { withFileTypes: true }).catch(() => [])));
      return [...new Set(found.flat().flatMap((entry) => (entry.isDirectory() ? [entry.name.replace(STARTER, "")] : [])))];
    },
    async close() {
      for (const each of weights) each.close();
      await eventually(async () => (await Promise.all(layout.everyRoot.map((root) => removeTree(join(root, parent))))).every(Boolean), KILL_BOUND_MS);
    },
  };
}

/** Writes a file that may be absent; in a control group the kernel makes the files, so this must not create one. */
async function writeExisting(path: string, value: string): Promise<void> {
  await writeFile(path, value, { flag: "r+" }).catch(() => {});
}

/** Version 2 delegates controllers level by level. */
async function delegate(root: string, parent: string): Promise<void> {
  const wanted = controllerNames.map((name) => `+${name}`).join(" ");
  await mkdir(join(root, parent), { recursive: true });
  for (const path of [root, join(root, parent)]) {
    await writeFile(join(path, "cgroup.subtree_control"), wanted).catch((error: NodeJS.ErrnoException) => {
      fail("HOST_UNSUITABLE", `${path}: the controllers cpu, memory, pids cannot be handed down (${error.code}); run svc where it owns its control groups`, {
        cause: error,
      });
    });
  }
}

async function membersOf(groups: readonly string[], read: (path: string) => Promise<string>): Promise<Set<number>> {
  const texts = await Promise.all(groups.map(read));
  return new Set(texts.flatMap((text) => text.split("\n").filter(Boolean).map(Number)));
}

const readMembers = (path: string) => readFile(join(path, "cgroup.procs"), "utf8").catch(() => "");

/** Reads the pids of a group and of all groups nested in it. */
async function readTree(path: string): Promise<string> {
  const own = await readMembers(path);
  const below = await readdir(path, { withFileTypes: true }).catch(() => []);
  const texts = await Promise.all(below.filter((entry) => entry.isDirectory()).map((entry) => readTree(join(path, entry.name))));
  return [own, ...texts].join("\n");
}

async function removeTree(path: string): Promise<boolean> {
  const below = await readdir(path, { withFileTypes: true }).catch(() => []);
  for (const entry of below) if (entry.isDirectory()) await removeTree(join(path, entry.name));
  return removeGroup(path);
}

/** Returns whether the group is gone; a group with members or nested groups stays. */
function removeGroup(path: string): Promise<boolean> {
  return rmdir(path).then(
    () => true,
    (error: NodeJS.ErrnoException) => error.code === "ENOENT",
  );
}

/** Runs a program and its children inside a control group, so that a starter that outlives its node can be found and killed. */
export function inGroup(entrances: readonly string[], argv: readonly string[]): string[] {
  const script = 'while [ "$1" != -- ]; do echo $$ >"$1" || exit 97; shift; done; shift; exec "$@"';
  return ["/bin/sh", "-c", script, "sh", ...entrances, "--", ...argv];
}
