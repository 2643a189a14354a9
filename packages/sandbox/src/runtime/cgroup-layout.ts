// Finds the control groups of this host and names the files of versions 1 and 2; the versions differ only here.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { readMounts } from "./mounts.ts";
import type { Limits } from "./runtime.ts";

export const controllerNames = ["cpu", "memory", "pids"] as const;
export type Controller = (typeof controllerNames)[number];

export type CgroupLayout = {
  readonly version: 1 | 2;
  /** Mount points by controller; a controller that the host lacks is absent. */
  readonly roots: ReadonlyMap<Controller, string>;
  /** Mount point whose groups count CPU time; version 1 has a separate controller for it. */
  readonly accounting: string | undefined;
  /** Mount point whose groups can be frozen; version 1 has a separate hierarchy for it, which a host may lack. */
  readonly freezer: string | undefined;
  /** Every hierarchy, including those where only a container runtime creates groups: removal has to visit them all. */
  readonly everyRoot: readonly string[];
};

export function findCgroups(): CgroupLayout {
  const mounts = readMounts();
  const v1 = mounts.filter(({ kind }) => kind === "cgroup").map(({ point, superOptions }) => ({ point, controllers: superOptions.split(",") }));
  const v2 = mounts.find(({ kind }) => kind === "cgroup2");
  const everyRoot = [...v1.map(({ point }) => point), ...(v2 === undefined ? [] : [v2.point])];
  const under = (name: string) => v1.find(({ controllers }) => controllers.includes(name))?.point;
  if (under("memory") !== undefined || under("cpu") !== undefined) {
    const roots = new Map(controllerNames.flatMap((name) => (under(name) === undefined ? [] : [[name, under(name) as string] as const])));
    return { version: 1, roots, accounting: under("cpuacct"), freezer: under("freezer"), everyRoot };
  }
  const point = v2?.point;
  const enabled = point === undefined ? [] : readFileSync(join(point, "cgroup.controllers"), "utf8").trim().split(/\s+/);
  const roots = new Map(controllerNames.flatMap((name) => (point !== undefined && enabled.includes(name) ? [[name, point] as const] : [])));
  return { version: 2, roots, accounting: point, freezer: point, everyRoot };
}

export type Setting = { readonly controller: Controller; readonly file: string; readonly value: string; readonly optional?: true };

const CPU_PERIOD_US = 100_000;
/** Host processes that a sandbox needs in addition to the guest's own (gVisor: the sentry's threads and stubs). */
export const PIDS_HEADROOM = 64;
/** A small shell takes 0.13 to 0.3 MiB of the group, most of it kernel memory. With more tasks the group would run out of memory first, and every `fork` in it would fail. */
const TASKS_PER_MB = 3;

/** The tasks of a sandbox on the host's own kernel: fewer than its limit where its memory would not hold as many. */
export function hostTasks({ pids, memoryMB }: Pick<Limits, "pids" | "memoryMB">): number {
  return Math.min(pids, memoryMB * TASKS_PER_MB) + PIDS_HEADROOM;
}

/** A driver's bounds on the control group; they differ from the sandbox's limits where the sandbox's own kernel enforces those. */
export type GroupLimits = { readonly pidsMax: number; readonly memoryBytes: number };

/** Returns the files that put the limits in force, in an order that the kernel accepts. */
export function limitSettings(version: 1 | 2, limits: Pick<Limits, "cpuCount">, { pidsMax, memoryBytes }: GroupLimits): Setting[] {
  const bytes = String(memoryBytes);
  const quotaUs = Math.round(limits.cpuCount * CPU_PERIOD_US);
  if (version === 2) {
    return [
      { controller: "memory", file: "memory.max", value: bytes },
      { controller: "memory", file: "memory.swap.max", value: "0", optional: true },
      { controller: "cpu", file: "cpu.max", value: `${quotaUs} ${CPU_PERIOD_US}` },
      { controller: "pids", file: "pids.max", value: String(pidsMax) },
    ];
  }
  return [
    { controller: "memory", file: "memory.limit_in_bytes", value: bytes },
    // This file limits memory and swap together, so the same value leaves no swap. It is absent where the kernel runs without swap accounting.
    { controller: "memory", file: "memory.memsw.limit_in_bytes", value: bytes, optional: true },
    { controller: "memory", file: "memory.swappiness", value: "0", optional: true },
    { controller: "cpu", file: "cpu.cfs_period_us", value: String(CPU_PERIOD_US) },
    { controller: "cpu", file: "cpu.cfs_quota_us", value: String(quotaUs) },
    { controller: "pids", file: "pids.max", value: String(pidsMax) },
  ];
}

/** Returns a group's weight among its siblings, as a fraction of the kernel's default weight. */
export function weightSetting(version: 1 | 2, part: number): Setting {
  const whole = version === 2 ? 100 : 1024;
  return { controller: "cpu", file: version === 2 ? "cpu.weight" : "cpu.shares", value: String(Math.round(whole * part)) };
}

/** Returns the file that freezes a group, the value to write, and the file and text that show when every member is frozen. */
export function freezing(version: 1 | 2, frozen: boolean): { readonly file: string; readonly value: string; readonly seenIn: string; readonly seen: RegExp } {
  if (version === 2) return { file: "cgroup.freeze", value: frozen ? "1" : "0", seenIn: "cgroup.events", seen: frozen ? /^frozen 1$/m : /^frozen 0$/m };
  const value = frozen ? "FROZEN" : "THAWED";
  return { file: "freezer.state", value, seenIn: "freezer.state", seen: new RegExp(`^${value}$`, "m") };
}

/** Reads one `name value` line of a flat keyed file, or 0 if the line is missing. */
export function keyedValue(text: string, key: string): number {
  for (const line of text.split("\n")) {
    const [name, value] = line.split(" ");
    if (name === key) return Number(value);
  }
  return 0;
}
