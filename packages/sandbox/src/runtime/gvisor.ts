// The primary driver: gVisor's runsc with the systrap platform, one kernel in user space per sandbox.
import { mkdir, readdir, readFile, readlink, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { inGroup } from "./cgroup.ts";
import { PIDS_HEADROOM } from "./cgroup-layout.ts";
import { type Engine, lastWords, pidFrom } from "./driver.ts";
import type { Host } from "./host.ts";
import { identityFiles, tarOf } from "./identity.ts";
import { unmountUnder } from "./mounts.ts";
import { ociConfig } from "./oci.ts";
import { findProgram } from "./programs.ts";
import { gvisorReport } from "./reports.ts";
import type { Limits, StartSpec } from "./runtime.ts";

/** What programs inside may do to gVisor's own kernel: enough for sudo, su, ping, apt and servers on low ports, no mounts, no interfaces. */
// biome-ignore format: one list, read across
export const gvisorCapabilities = [
  "CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD", "CAP_NET_BIND_SERVICE",
  "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT", "CAP_SYS_PTRACE",
];

const START_TIMEOUT_MS = 30_000;
const DELETE_TIMEOUT_MS = 15_000;
/** Open files inside; gVisor counts them itself, so the host's own bound does not matter. */
const OPEN_FILES = 1_048_576;
/** Each process inside is a stub process with threads on the host; the guest's own bound is RLIMIT_NPROC. */
const HOST_TASKS_PER_PROCESS = 4;

export function gvisorEngine(host: Host): Engine {
  const { spawner, cgroups } = host;
  const stateRoot = join(host.folder, "state");
  const runsc = () => findProgram("runsc", host.programs?.runsc);

  async function launch(spec: StartSpec): Promise<{ pid: number; endpoint: { kind: "tcp"; host: string } }> {
    const { runtimeID, directory, network, limits } = spec;
    if (network === undefined) fail("SANDBOX_START_FAILED", "the gvisor driver needs a network slot");
    const [program] = await Promise.all([runsc(), mkdir(stateRoot, { recursive: true, mode: 0o700 }), mkdir(join(directory, "upper"), { recursive: true })]);
    const identity = join(directory, "identity.tar");
    const config = ociConfig({
      spec,
      rootPath: spec.image.rootfs,
      cgroupsPath: cgroups.pathOf(runtimeID),
      capabilities: gvisorCapabilities,
      rlimits: [
        { type: "RLIMIT_NOFILE", hard: OPEN_FILES, soft: OPEN_FILES },
        { type: "RLIMIT_NPROC", hard: limits.pids, soft: limits.pids },
      ],
      annotations: { "dev.gvisor.tar.rootfs.upper": identity },
    });
    await Promise.all([
      writeFile(join(directory, "config.json"), JSON.stringify(config)),
      writeFile(identity, tarOf(identityFiles(spec.hostname, network.gatewayAddress), Date.now())),
    ]);
    const pidFile = join(directory, "pid");
    const logFile = join(directory, "runsc.log");
    // runsc takes the address and the default route off the slot's interface at start and answers for them itself.
    const argv = [program, ...runscFlags(stateRoot, directory, limits), "run", "-bundle", directory, "-pid-file", pidFile, "-detach", runtimeID];
    const result = await spawner.run(inGroup(cgroups.starterEntrances(runtimeID), argv), { outputFile: logFile, timeoutMs: START_TIMEOUT_MS });
    if (result.code !== 0) {
      const last = await readFile(logFile, "utf8").catch(() => "");
      fail("SANDBOX_START_FAILED", `runsc run ended with ${result.code ?? result.signal}: ${lastWords(last)}`);
    }
    return { pid: await pidFrom(() => readFile(pidFile, "utf8")), endpoint: { kind: "tcp", host: network.guestAddress } };
  }

  async function forget(runtimeID: string): Promise<void> {
    if (!(await known()).includes(runtimeID)) return;
    const program = await runsc();
    const result = await spawner.run([program, `--root=${stateRoot}`, "delete", "-force", runtimeID], { timeoutMs: DELETE_TIMEOUT_MS });
    // A start that was cut off may leave a record that runsc cannot read; its processes are gone by now.
    if (result.code !== 0) host.log.warn({ runtimeID, says: lastWords(result.stderr) }, "runsc cannot delete a sandbox; its record is removed");
    // Without a state file `delete -force` succeeds, and leaves lock and socket.
    for (const name of await stateFiles(runtimeID)) await rm(join(stateRoot, name), { force: true });
  }

  async function stateFiles(runtimeID?: string): Promise<string[]> {
    const names = await readdir(stateRoot).catch(() => []);
    return names.filter((name) => idOf(name) !== undefined && (runtimeID === undefined || idOf(name) === runtimeID));
  }

  async function known(): Promise<string[]> {
    return [...new Set((await stateFiles()).flatMap((name) => idOf(name) ?? []))];
  }

  return {
    name: "gvisor",
    pidsMax: ({ pids }) => pids * HOST_TASKS_PER_PROCESS + PIDS_HEADROOM,
    launch,
    forget,
    known,
    diskBytes: ({ pid }) => filestoreBytes(pid),
    report: async (proof) => gvisorReport(proof, cgroups),
    close: () => unmountUnder(spawner, stateRoot), // the empty network namespace that its gofers share is pinned there
  };
}

/** The flags before the verb; the same for every verb that starts a sandbox. */
export function runscFlags(stateRoot: string, directory: string, limits: Limits): string[] {
  return [
    `--root=${stateRoot}`,
    "--platform=systrap",
    "--network=sandbox",
    "--host-settings=ignore",
    "--allow-suid", // sudo
    "--net-raw", // ping; an anti-spoof rule on the slot bounds what root inside can send
    "--allow-connected-on-save", // else connections end at the second pause
    "--allow-rootfs-tar-annotation", // /etc/hosts and its like go into the upper layer, where they can be edited
    // runsc counts what the upper layer holds and answers ENOSPC at `size`. Its file is unlinked at once, so a killed sandbox frees it.
    `--overlay2=root:dir=${join(directory, "upper")},size=${limits.diskSizeMB}m`,
  ];
}

/** runsc names its files ID_sandbox:ID.state and .lock, runsc-ID.sock; ids have neither underscore, colon nor dash. */
function idOf(stateFile: string): string | undefined {
  return (/^([a-z0-9]+)_sandbox:\1\./.exec(stateFile) ?? /^runsc-([a-z0-9]+)\.sock$/.exec(stateFile))?.[1];
}

/** Blocks of the upper layer's file, which has no name any more but is still open in the sentry. */
async function filestoreBytes(pid: number): Promise<number> {
  const folder = `/proc/${pid}/fd`;
  for (const name of await readdir(folder).catch(() => [])) {
    const target = await readlink(join(folder, name)).catch(() => "");
    if (!target.includes("/runsc-filestore-")) continue;
    return ((await stat(join(folder, name)).catch(() => undefined))?.blocks ?? 0) * 512;
  }
  return 0;
}
