// The bubblewrap driver as root: namespaces and control groups without a container runtime. It starts fastest and isolates least.
import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { inGroup } from "./cgroup.ts";
import { hostTasks } from "./cgroup-layout.ts";
import { openDisk } from "./disk.ts";
import { type Engine, pidFrom } from "./driver.ts";
import { endOfOutput } from "./driver-failures.ts";
import type { Host } from "./host.ts";
import { identityFiles } from "./identity.ts";
import { withoutLinks } from "./mount-points.ts";
import { overlayCheckpoints } from "./overlay-checkpoint.ts";
import { runs } from "./process.ts";
import { findProgram } from "./programs.ts";
import { bubblewrapReport } from "./reports.ts";
import { bindMounts, defaultEnvironment, envdPathInside, tmpfsMounts } from "./rootfs.ts";
import { hostKernelCapabilities } from "./runc.ts";
import type { StartSpec } from "./runtime.ts";
import { bpfSeccomp } from "./seccomp.ts";

const START_TIMEOUT_MS = 30_000;
const PID_REPORT_TIMEOUT_MS = 10_000;

/** bubblewrap writes its report about the child to descriptor 8 and reads the system call filter from descriptor 9. */
export const launchScript = 'info=$1 filter=$2; shift 2; exec setsid --fork "$@" 8>"$info" 9<"$filter"';

export async function bubblewrapEngine(host: Host): Promise<Engine> {
  const { spawner, cgroups, log } = host;
  const disk = await openDisk({ spawner, log });

  async function launch(spec: StartSpec): Promise<{ pid: number; endpoint: { kind: "tcp"; host: string } }> {
    const { runtimeID, directory, network } = spec;
    if (network === undefined) fail("SANDBOX_START_FAILED", "the bubblewrap driver as root needs a network slot");
    const files = identityFiles(spec.hostname, network.gatewayAddress);
    const [program, rootPath, volumes] = await Promise.all([
      findProgram("bwrap", host.programs?.bwrap),
      disk.stack(spec, files, cgroups.starterEntrances(runtimeID)),
      withoutLinks(spec),
      writeLaunchFiles(spec),
    ]);
    const options = [
      ...bwrapOptions({ ...spec, volumes }, rootPath, directory),
      ...["--cap-drop", "ALL"],
      ...hostKernelCapabilities.flatMap((name) => ["--cap-add", name]),
    ];
    const bwrap = ["nsenter", `--net=${network.netnsPath}`, "--", program, ...options, "--", envdPathInside, ...spec.envd.args];
    const argv = ["/bin/sh", "-c", launchScript, "sh", join(directory, "info.json"), join(directory, "filter.bpf"), ...bwrap];
    const pid = await launchAndReadPid(spawner, inGroup(cgroups.entrances(runtimeID), argv), directory);
    return { pid, endpoint: { kind: "tcp", host: network.guestAddress } };
  }

  return {
    name: "bubblewrap",
    pidsMax: hostTasks,
    launch,
    forget: (_, directory) => disk.unstack(directory),
    known: async () => [],
    released: disk.released,
    ...overlayCheckpoints(cgroups, disk),
    diskBytes: ({ directory }) => disk.usedBytes(directory).catch(() => 0),
    report: async (proof) => bubblewrapReport(proof, cgroups, disk.kind),
    close: async () => {},
  };
}

export async function writeLaunchFiles({ directory, bootID }: StartSpec): Promise<void> {
  await Promise.all([writeFile(join(directory, "boot_id"), `${bootID}\n`), writeFile(join(directory, "filter.bpf"), bpfSeccomp())]);
}

/** Files of /proc that reveal the host's state or change it. */
const maskedFiles = [
  "/proc/kcore",
  "/proc/keys",
  "/proc/sysrq-trigger",
  "/proc/timer_list",
  "/proc/interrupts",
  "/proc/kallsyms",
  "/proc/kpagecount",
  "/proc/kpageflags",
];

/** Returns the options that both bubblewrap drivers share; `rootPath` is the stacked root file system. */
export function bwrapOptions(spec: StartSpec, rootPath: string, directory: string, svcFolder: readonly string[] = []): string[] {
  const environment = { ...defaultEnvironment, HOSTNAME: spec.hostname, ...spec.envd.env };
  return [
    ...["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--as-pid-1", "--new-session"],
    ...["--hostname", spec.hostname, "--bind", rootPath, "/", "--proc", "/proc", "--dev", "/dev"],
    // bubblewrap treats /proc/sys as read-only because its directories are, but root can write the files in it.
    ...["--ro-bind", "/proc/sys", "/proc/sys", ...maskedFiles.flatMap((path) => (existsSync(path) ? ["--ro-bind", "/dev/null", path] : []))],
    ...["--ro-bind", join(directory, "boot_id"), "/proc/sys/kernel/random/boot_id"],
    // A full /sys would reveal the host's network; the C library counts processors in this part.
    ...["--perms", "0755", "--size", "65536", "--tmpfs", "/sys"],
    ...["/sys/devices", "/sys/devices/system"].flatMap((path) => ["--perms", "0755", "--dir", path]),
    ...["--ro-bind", "/sys/devices/system/cpu", "/sys/devices/system/cpu"],
    ...tmpfsMounts(spec.limits).flatMap(({ destination, mode, sizeBytes }) => [
      "--perms",
      mode.toString(8).padStart(4, "0"),
      "--size",
      String(sizeBytes),
      "--tmpfs",
      destination,
    ]),
    ...svcFolder,
    ...bindMounts(spec.image, spec.envd.binary).flatMap(({ source, destination }) => ["--ro-bind", source, destination]),
    // bubblewrap adds nosuid and nodev to its binds, and would make missing parents of a mount for root alone.
    ...(spec.volumes ?? []).flatMap(({ source, path }) => [
      ...parentsOf(path).flatMap((parent) => ["--perms", "0755", "--dir", parent]),
      ...["--bind", source, path],
    ]),
    ...["--clearenv", ...Object.entries(environment).flatMap(([name, value]) => ["--setenv", name, value])],
    ...["--chdir", "/", "--info-fd", "8", "--seccomp", "9"],
  ];
}

/** /a/b/c → ["/a", "/a/b"] */
function parentsOf(path: string): string[] {
  const parts = path.split("/").slice(1, -1);
  return parts.map((_, at) => `/${parts.slice(0, at + 1).join("/")}`);
}

export async function launchAndReadPid(spawner: Host["spawner"], argv: readonly string[], directory: string, env?: Record<string, string>): Promise<number> {
  const logFile = join(directory, "bwrap.log");
  const result = await spawner.run(argv, { outputFile: logFile, timeoutMs: START_TIMEOUT_MS, ...(env === undefined ? {} : { env }) });
  const says = async () => endOfOutput(await readFile(logFile, "utf8").catch(() => ""));
  if (result.code !== 0) fail("SANDBOX_START_FAILED", `bubblewrap ended with ${result.code ?? result.signal}: ${await says()}`);
  const reportedPid = async () => /"child-pid": (\d+)/.exec(await readFile(join(directory, "info.json"), "utf8"))?.[1] ?? "";
  // Without root, the layer is unpacked before bubblewrap starts.
  const pid = await pidFrom(reportedPid, PID_REPORT_TIMEOUT_MS).catch(async (error: unknown) =>
    fail("SANDBOX_START_FAILED", `bubblewrap did not start: ${await says()}`, { cause: error }),
  );
  // bubblewrap reports the pid before it has mounted anything; only envd's exec proves that every step succeeded.
  return (await runs(pid, envdPathInside, START_TIMEOUT_MS)) ? pid : fail("SANDBOX_START_FAILED", `bubblewrap could not start envd: ${await says()}`);
}
