// Lists what remains of a home in the kernel and on the disk: processes, mounts, network namespaces, links, cgroups, directories.
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, realpathSync } from "node:fs";
import { join } from "node:path";
import { parseCidr } from "@svc/sandbox/egress/cidr.ts";
import { anchorOf } from "@svc/sandbox/network/block.ts";
import { prefixOf, tokenOf } from "@svc/sandbox/network/names.ts";
import { parentNameOf } from "@svc/sandbox/runtime/cgroup.ts";
import { mountsUnder } from "@svc/sandbox/runtime/mounts.ts";

const CGROUPS = "/sys/fs/cgroup";

export type Leftovers = {
  /** Sandboxes that have a directory in the home. */
  readonly directories: readonly string[];
  readonly netns: readonly string[];
  readonly links: readonly string[];
  readonly cgroups: readonly string[];
  /** Mount points below the home's sandboxes. */
  readonly mounts: readonly string[];
  /** Command lines of processes that name a sandbox of the home. */
  readonly processes: readonly string[];
};

/** Lists everything that belongs to a sandbox of this home; all lists are empty if none is running. */
export function leftovers(home: string): Leftovers {
  const real = realpathSync(home);
  const sandboxes = join(real, "sandboxes");
  const prefix = prefixOf(tokenOf(real));
  return {
    directories: existsSync(sandboxes) ? readdirSync(sandboxes) : [],
    netns: existsSync("/run/netns") ? readdirSync("/run/netns").filter((name) => name.startsWith(prefix)) : [],
    links: linkNames().filter((name) => name.startsWith(prefix)),
    cgroups: cgroupsOf(parentNameOf(real)),
    mounts: readFileSync("/proc/self/mounts", "utf8")
      .split("\n")
      .flatMap((line) => (line.split(" ")[1]?.startsWith(`${sandboxes}/`) === true ? [line.split(" ")[1] ?? ""] : [])),
    processes: processesNaming(`${sandboxes}/`),
  };
}

/** Returns whether the host has nothing of this home: neither sandboxes nor the parts that they share. */
export function isBare(home: string): boolean {
  const real = realpathSync(home);
  const path = join(real, "network.json");
  const block = existsSync(path) ? parseCidr((JSON.parse(readFileSync(path, "utf8")) as { block?: string }).block ?? "") : undefined;
  if (block !== undefined && existsSync(`/sys/class/net/${anchorOf(block)}`)) return false;
  if (mountsUnder(real).length > 0) return false;
  if (existsSync(CGROUPS) && ["", ...readdirSync(CGROUPS)].some((controller) => existsSync(join(CGROUPS, controller, parentNameOf(real))))) return false;
  return Object.values(leftovers(home)).every((found) => found.length === 0);
}

/** Returns the host pids of a sandbox's processes, by its cgroup. */
export function membersOf(home: string, sandboxID: string): number[] {
  const cgroups = cgroupsOf(parentNameOf(realpathSync(home))).filter((cgroup) => cgroup.endsWith(`/${sandboxID}`));
  const pids = cgroups.flatMap((cgroup) => {
    try {
      return readFileSync(join(cgroup, "cgroup.procs"), "utf8")
        .split("\n")
        .filter((line) => line !== "");
    } catch {
      return []; // the cgroup was removed after it was listed
    }
  });
  return [...new Set(pids.map(Number))];
}

function linkNames(): string[] {
  const links = JSON.parse(execFileSync("ip", ["-j", "link", "show"], { encoding: "utf8" })) as { ifname: string }[];
  return links.map((link) => link.ifname);
}

function cgroupsOf(parent: string): string[] {
  const cgroups = [join(CGROUPS, parent), ...readdirSync(CGROUPS).map((controller) => join(CGROUPS, controller, parent))];
  return cgroups.flatMap((cgroup) => {
    try {
      return readdirSync(cgroup, { withFileTypes: true })
        .filter((entry) => entry.isDirectory())
        .map((entry) => join(cgroup, entry.name));
    } catch {
      return [];
    }
  });
}

function processesNaming(text: string): string[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        const line = readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ");
        return line.includes(text) ? [`${pid} ${line}`] : [];
      } catch {
        return [];
      }
    });
}
