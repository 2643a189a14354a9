// Checks of what the kernel and this process's privileges offer to sandboxes.
import { existsSync, readFileSync } from "node:fs";
import type { Spawner } from "@svc/kit/spawn.ts";
import { controllerNames, findCgroups } from "../runtime/cgroup-layout.ts";
import { haveLoopDevices } from "../runtime/disk.ts";
import { hardOpenFiles } from "../runtime/process.ts";
import { type Check, failed, passed } from "./check.ts";

const OPEN_FILES_WANTED = 16_384;

export async function kernelChecks(spawner: Spawner): Promise<Check[]> {
  return [
    root(),
    await userNamespaces(spawner),
    fileSystem("overlay", "runc and bubblewrap cannot stack a sandbox's files over a template"),
    await loopDevices(),
    cgroups(),
    seccomp(),
    openFiles(),
    kvm(),
    tun(),
  ];
}

function root(): Check {
  const name = "root";
  if (process.getuid?.() === 0) return passed(name, "this process is root");
  const follows = "only bubblewrap without root: no limits on memory and CPU, no network of its own";
  return failed(name, `this process is user ${process.getuid?.()}`, follows, "run svc as root");
}

async function userNamespaces(spawner: Spawner): Promise<Check> {
  const name = "user namespaces";
  const follows = process.getuid?.() === 0 ? "as root nothing; a plain user can run no sandbox" : "no sandbox can run without root";
  const result = await spawner.run(["unshare", "--user", "--map-root-user", "--mount", "true"]).catch((error: Error) => ({ code: 1, stderr: error.message }));
  if (result.code === 0) return passed(name, "one was made and left");
  const knobs = ["/proc/sys/kernel/unprivileged_userns_clone", "/proc/sys/user/max_user_namespaces", "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"];
  const state = knobs.flatMap((path) =>
    existsSync(path) ? [`${path.slice("/proc/sys/".length).replaceAll("/", ".")} = ${readFileSync(path, "utf8").trim()}`] : [],
  );
  const fix = "sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=15000 kernel.apparmor_restrict_unprivileged_userns=0 (those that exist)";
  return failed(name, [result.stderr.trim(), ...state].join("; "), follows, fix);
}

function fileSystem(kind: string, follows: string): Check {
  const kinds = readFileSync("/proc/filesystems", "utf8")
    .split("\n")
    .map((line) => line.split("\t").at(-1));
  if (kinds.includes(kind)) return passed(`${kind} file system`, "in this kernel");
  return failed(`${kind} file system`, "not in this kernel, or its module is not loaded", follows, `modprobe ${kind}`);
}

async function loopDevices(): Promise<Check> {
  const name = "loop devices";
  if (await haveLoopDevices()) return passed(name, "disks of runc and bubblewrap are images on them; gvisor needs none");
  const follows = "runc and bubblewrap keep what sandboxes write in memory";
  return failed(name, "/dev/loop-control cannot be opened", follows, "modprobe loop; in a container: hand /dev/loop-control and loop devices in");
}

function cgroups(): Check {
  const layout = findCgroups();
  const missing = controllerNames.filter((name) => !layout.roots.has(name));
  if (missing.length === 0) return passed("cgroups", `version ${layout.version} with ${controllerNames.join(", ")}`);
  const says = layout.everyRoot.length === 0 ? "none are mounted" : `version ${layout.version} without ${missing.join(", ")}`;
  const fix = "boot with cgroup_enable=memory; in a container: --cgroupns=host with /sys/fs/cgroup writable";
  return failed("cgroups", says, "CPU, memory and processes of a sandbox cannot be limited, and no driver for root starts one", fix);
}

function seccomp(): Check {
  const there = existsSync("/proc/sys/kernel/seccomp/actions_avail");
  if (there) return passed("seccomp", "filters of system calls are available");
  return failed("seccomp", "not in this kernel", "no driver can run: each filters its system calls", "use a kernel with CONFIG_SECCOMP_FILTER");
}

function openFiles(): Check {
  const hard = hardOpenFiles();
  if (hard >= OPEN_FILES_WANTED) return passed("open files", `up to ${hard} per process`);
  return failed(
    "open files",
    `up to ${hard} per process`,
    "a node with many sandboxes and connections runs out of them",
    `ulimit -Hn ${OPEN_FILES_WANTED} before starting, or LimitNOFILE= in its unit`,
  );
}

function kvm(): Check {
  return passed("/dev/kvm", existsSync("/dev/kvm") ? "there; not needed, gvisor runs on systrap" : "not there; not needed, gvisor runs on systrap");
}

function tun(): Check {
  return passed("/dev/net/tun", existsSync("/dev/net/tun") ? "there; not needed" : "not there; not needed");
}
