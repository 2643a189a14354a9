// Describes the abilities of each driver, in the texts that `svc doctor` prints.
import type { Cgroups } from "./cgroup.ts";
import { controllerNames } from "./cgroup-layout.ts";
import type { DiskKind } from "./disk.ts";
import type { Proof } from "./prove.ts";
import type { Capability, RuntimeReport } from "./runtime.ts";

export function gvisorReport(proof: Proof, cgroups: Cgroups): RuntimeReport {
  return {
    runtime: "gvisor",
    ...proof,
    isolation: "kernel in user space",
    pauseWithMemory: { works: proof.usable.works, says: "by checkpoint: memory, processes and files go to disk and come back, also as several copies" },
    pauseWithFiles: { works: proof.usable.works, says: "by a checkpoint of the file system; extended attributes whose value is not text are lost" },
    limits: groupLimits(cgroups, "gVisor's own kernel ends the program that takes too much memory, and refuses forks beyond the limit"),
    diskLimit: { works: true, says: "exact; counted by gVisor, ENOSPC inside" },
    network: { works: true, says: "its own network stack on a veth of its own" },
  };
}

export function runcReport(proof: Proof, cgroups: Cgroups, disk: DiskKind): RuntimeReport {
  return {
    runtime: "runc",
    ...proof,
    isolation: "namespaces",
    pauseWithMemory: { works: false, says: "no; memory goes to disk through CRIU alone, which this driver does not use", fix: "use the gvisor driver" },
    pauseWithFiles: filesByArchive(cgroups),
    limits: groupLimits(cgroups, "a program that takes too much memory is killed alone"),
    diskLimit: imageLimit(disk),
    network: { works: true, says: "the host kernel's stack in a network namespace on a veth of its own" },
  };
}

export function bubblewrapReport(proof: Proof, cgroups: Cgroups, disk: DiskKind): RuntimeReport {
  return {
    runtime: "bubblewrap",
    ...proof,
    isolation: "namespaces",
    pauseWithMemory: { works: false, says: "no; bubblewrap keeps nothing of a process", fix: "use the gvisor driver" },
    pauseWithFiles: filesByArchive(cgroups),
    limits: groupLimits(cgroups, "sudo does not work inside: bubblewrap lets no program gain rights"),
    diskLimit: imageLimit(disk),
    network: { works: true, says: "the host kernel's stack in a network namespace on a veth of its own" },
  };
}

/** `mapped` says that the host grants this user a range of ids (subuid), so that `user` and root inside are different users. */
export function rootlessReport(proof: Proof, mapped: boolean): RuntimeReport {
  return {
    runtime: "bubblewrap",
    ...proof,
    isolation: "unprivileged namespaces",
    pauseWithMemory: { works: false, says: "no; bubblewrap keeps nothing of a process", fix: "use the gvisor driver as root" },
    pauseWithFiles: { works: true, says: "by an archive of what was written; processes are stopped by signals meanwhile" },
    limits: {
      works: false,
      says: `memory and CPU are not limited; processes are, per user inside; ${mapped ? "commands run as `user`, without sudo" : "every command runs as root inside, which is you outside"}`,
      fix: mapped ? "run svc as root" : "run svc as root, or grant ids: apt-get install uidmap and a line in /etc/subuid and /etc/subgid",
    },
    diskLimit: { works: true, says: "a tmpfs with a size: ENOSPC inside, but what is written is kept in memory" },
    network: { works: false, says: "loopback alone; ports are reached through envd's relay, nothing reaches the internet", fix: "run svc as root" },
  };
}

function filesByArchive({ layout }: Cgroups): Capability {
  if (layout.freezer !== undefined) return { works: true, says: "by an archive of what was written, while the cgroup freezer holds all processes" };
  return { works: false, says: "no: this host has no cgroup freezer", fix: "boot with the freezer controller on" };
}

function groupLimits({ layout }: Cgroups, also: string): Capability {
  const missing = controllerNames.filter((name) => !layout.roots.has(name));
  if (missing.length > 0) {
    return { works: false, says: `no control of ${missing.join(", ")}`, fix: "boot with these cgroup controllers on, or run svc where they are handed down" };
  }
  return { works: true, says: `CPU, memory and processes by cgroup v${layout.version}; ${also}` };
}

function imageLimit(kind: DiskKind): Capability {
  if (kind === "image") return { works: true, says: "an ext4 image per sandbox on a loop device; ENOSPC inside" };
  return {
    works: true,
    says: "a tmpfs with a size: ENOSPC inside, but what is written is kept in memory",
    fix: "make loop devices available (/dev/loop-control)",
  };
}
