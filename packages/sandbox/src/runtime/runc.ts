// The runc driver: namespaces, control groups, seccomp and an overlay file system on the host's own kernel.
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { inGroup } from "./cgroup.ts";
import { hostTasks } from "./cgroup-layout.ts";
import { openDisk } from "./disk.ts";
import { type Engine, pidFrom } from "./driver.ts";
import { endOfOutput } from "./driver-failures.ts";
import type { Host } from "./host.ts";
import { identityFiles } from "./identity.ts";
import { unmountUnder } from "./mounts.ts";
import { ociConfig } from "./oci.ts";
import { overlayCheckpoints } from "./overlay-checkpoint.ts";
import { hardOpenFiles, runs } from "./process.ts";
import { findProgram, lookForProgram } from "./programs.ts";
import { runcReport } from "./reports.ts";
import { envdPathInside } from "./rootfs.ts";
import type { StartSpec } from "./runtime.ts";
import { ociSeccomp } from "./seccomp.ts";

/** The capabilities that root keeps: enough for sudo, su, ping, apt and servers on low ports. No user namespace confines them. */
// biome-ignore format: one list, read across
export const hostKernelCapabilities = [
  "CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE",
  "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
];

const START_TIMEOUT_MS = 30_000;
const DELETE_TIMEOUT_MS = 15_000;

export async function runcEngine(host: Host): Promise<Engine> {
  const { spawner, cgroups, log } = host;
  const stateRoot = join(host.folder, "state");
  const disk = await openDisk({ spawner, log });
  const runc = () => findProgram("runc", host.programs?.runc);

  async function launch(spec: StartSpec): Promise<{ pid: number; endpoint: { kind: "tcp"; host: string } }> {
    const { runtimeID, directory, network } = spec;
    if (network === undefined) fail("SANDBOX_START_FAILED", "the runc driver needs a network slot");
    const files = identityFiles(spec.hostname, network.gatewayAddress);
    const [program, rootPath] = await Promise.all([
      runc(),
      disk.stack(spec, files, cgroups.starterEntrances(runtimeID)),
      mkdir(stateRoot, { recursive: true, mode: 0o700 }),
    ]);
    const openFiles = hardOpenFiles();
    const bootID = join(directory, "boot_id");
    const config = ociConfig({
      spec,
      rootPath,
      cgroupsPath: cgroups.pathOf(runtimeID),
      capabilities: hostKernelCapabilities,
      rlimits: [{ type: "RLIMIT_NOFILE", hard: openFiles, soft: openFiles }],
      seccomp: ociSeccomp(),
      // Programs size their heaps and thread pools by the limits they find here.
      extraMounts: [{ destination: "/sys/fs/cgroup", type: "cgroup", source: "cgroup", options: ["nosuid", "noexec", "nodev", "relatime", "ro"] }],
      // Without this mount every sandbox would show the host's boot id, by which clients detect a restarted sandbox; runc itself mounts nothing
      // there.
      hooks: { createContainer: [{ path: "/bin/mount", args: ["mount", "-o", "bind,ro", bootID, join(rootPath, "proc/sys/kernel/random/boot_id")] }] },
    });
    await Promise.all([writeFile(join(directory, "config.json"), JSON.stringify(config)), writeFile(bootID, `${spec.bootID}\n`, { mode: 0o444 })]);
    const pidFile = join(directory, "pid");
    const logFile = join(directory, "runc.log");
    const argv = [program, "--root", stateRoot, "run", "--bundle", directory, "--pid-file", pidFile, "--detach", runtimeID];
    const result = await spawner.run(inGroup(cgroups.starterEntrances(runtimeID), argv), { outputFile: logFile, timeoutMs: START_TIMEOUT_MS });
    const says = async () => endOfOutput(await readFile(logFile, "utf8").catch(() => ""));
    if (result.code !== 0) fail("SANDBOX_START_FAILED", `runc run ended with ${result.code ?? result.signal}: ${await says()}`);
    const pid = await pidFrom(() => readFile(pidFile, "utf8"));
    // runc exits when its first process is about to exec envd, which may still fail.
    if (!(await runs(pid, envdPathInside, START_TIMEOUT_MS))) fail("SANDBOX_START_FAILED", `runc could not start envd, which ended at once: ${await says()}`);
    return { pid, endpoint: { kind: "tcp", host: network.guestAddress } };
  }

  async function forget(runtimeID: string, directory: string): Promise<void> {
    if ((await known()).includes(runtimeID)) {
      const says = await deleted(runtimeID);
      if (says !== undefined) log.warn({ runtimeID, says }, "runc cannot delete a sandbox; its record is removed");
      // A start that was cut off leaves a record without state, which runc may treat as missing, and in it runc's own program, mounted.
      const record = join(stateRoot, runtimeID);
      await unmountUnder(spawner, record);
      await host.removeFolder(record);
    }
    await disk.unstack(directory);
  }

  /** Returns runc's error message if it did not delete the sandbox, or says that runc is gone. */
  async function deleted(runtimeID: string): Promise<string | undefined> {
    const program = await lookForProgram("runc", host.programs?.runc);
    if (program === undefined) return "runc is gone";
    const { code, stderr } = await spawner.run([program, "--root", stateRoot, "delete", "--force", runtimeID], { timeoutMs: DELETE_TIMEOUT_MS });
    return code === 0 ? undefined : endOfOutput(stderr);
  }

  async function known(): Promise<string[]> {
    return readdir(stateRoot).catch(() => []);
  }

  return {
    name: "runc",
    pidsMax: hostTasks,
    launch,
    forget,
    known,
    released: disk.released,
    ...overlayCheckpoints(cgroups, disk),
    diskBytes: ({ directory }) => disk.usedBytes(directory).catch(() => 0),
    report: async (proof) => runcReport(proof, cgroups, disk.kind),
    close: async () => {},
  };
}
