// The primary driver: gVisor's runsc with the systrap platform, one kernel in user space per sandbox.
import { randomUUID } from "node:crypto";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { inGroup } from "./cgroup.ts";
import { PIDS_HEADROOM } from "./cgroup-layout.ts";
import { type Engine, type Location, pidFrom } from "./driver.ts";
import { endOfOutput } from "./driver-failures.ts";
import { checkpointedAnnotations, openCheckpoint } from "./gvisor-checkpoint.ts";
import { openExport } from "./gvisor-export.ts";
import { openFreezer } from "./gvisor-freeze.ts";
import { guestLimitHits, hardMemoryBytes, writeGuestLimits } from "./gvisor-guest-limits.ts";
import { openKernel } from "./gvisor-kernel.ts";
import { dropMerged, layerBytes, stackLayers } from "./gvisor-layers.ts";
import { openRunsc } from "./gvisor-runsc.ts";
import { openStarters } from "./gvisor-starter.ts";
import type { Host } from "./host.ts";
import { identityFiles, tarOf } from "./identity.ts";
import { rootWithMountPoints } from "./mount-points.ts";
import { unmountUnder } from "./mounts.ts";
import { ociConfig } from "./oci.ts";
import { gvisorReport } from "./reports.ts";
import type { Limits, Precreated, PrecreatedKind, StartSpec } from "./runtime.ts";

/** Capabilities towards gVisor's own kernel: enough for sudo, su, ping, apt and servers on low ports, but no mounts or interfaces. */
// biome-ignore format: one list, read across
export const gvisorCapabilities = [
  "CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD", "CAP_NET_BIND_SERVICE",
  "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT", "CAP_SYS_PTRACE",
];

/** A bare name, found in runsc's working directory: a restore must name the archive exactly as the checkpointed sandbox did. */
const identityArchive = "identity.tar";
const firstAnnotations = { "dev.gvisor.tar.rootfs.upper": identityArchive };
const bootIDFile = "boot_id";
const PANIC_LOG = "panic.log";
const LOG = "runsc.log";
const START_TIMEOUT_MS = 30_000;
/** A restore reads the whole memory before it returns. */
const RESTORE_TIMEOUT_MS = 5 * 60_000;
/** Open files inside; gVisor counts them itself, so the host's own bound does not matter. */
const OPEN_FILES = 1_048_576;
/** A process inside is a stub process with threads on the host; gVisor's kernel enforces the guest's own bound. */
const HOST_TASKS_PER_PROCESS = 5;
/** Host tasks of ended processes disappear with a delay, and a fork that the host refuses kills the kernel inside. */
const HOST_TASKS_ENDING = 1024;

type Started = { readonly pid: number; readonly endpoint: { readonly kind: "tcp"; readonly host: string } };

export function gvisorEngine(host: Host): Engine {
  const { spawner, cgroups } = host;
  const runsc = openRunsc(host);
  const { stateRoot } = runsc;
  const kernel = openKernel(stateRoot);
  const freezer = openFreezer(kernel);
  const starters = openStarters(spawner);

  async function launch(spec: StartSpec): Promise<Started> {
    const { directory, from } = spec;
    const isMemory = from?.kind === "memory";
    const program = isMemory ? await runsc.programs.of(from.directory) : await runsc.programs.current();
    const address = await bundle(spec, program);
    if (isMemory) await stackLayers(spawner, from.directory, directory);
    const pidFile = join(directory, "pid");
    // runsc moves the address and the default route from the slot's interface into its own network stack at start.
    await start(spec, program, [...verbFor(from), "-bundle", directory, "-pid-file", pidFile, "-detach"]);
    if (isMemory) await dropMerged(directory);
    if (from?.kind === "filesystem") {
      // The files' content is read in the background; only after this wait is it known to be complete, and the checkpoint may be removed.
      const { code, message } = await runsc.verb(spec, RESTORE_TIMEOUT_MS, "wait", "-fsrestore");
      if (code !== 0) fail("SANDBOX_START_FAILED", message);
    }
    return started(pidFile, address);
  }

  /**
   * Returns undefined for a checkpoint of an earlier runsc, or of a sandbox that started from files alone: such a sandbox must be created as the
   * checkpointed one was.
   */
  async function kindOf({ image, limits, envd, from }: Pick<StartSpec, "image" | "limits" | "envd" | "from">): Promise<PrecreatedKind | undefined> {
    const program = await runsc.programs.current();
    if (from?.kind === "filesystem") return undefined;
    if (from !== undefined) {
      const [itsProgram, annotations] = await Promise.all([runsc.programs.of(from.directory), checkpointedAnnotations(from)]);
      if (itsProgram !== program || JSON.stringify(annotations) !== JSON.stringify(firstAnnotations)) return undefined;
    }
    return { image, limits, envd, program };
  }

  async function makePrecreated({ program, ...kind }: PrecreatedKind, location: Location): Promise<Started> {
    const spec = { ...kind, ...location, hostname: location.runtimeID, bootID: randomUUID() };
    const address = await bundle(spec, program);
    const pidFile = join(location.directory, "pid");
    await start(spec, program, ["create", "-bundle", location.directory, "-pid-file", pidFile]);
    const { runtimeID, directory } = location;
    starters.wait(location, cgroups.starterEntrances(runtimeID), [program, ...runscFlags(stateRoot, directory, kind.limits)], join(directory, LOG));
    return started(pidFile, address);
  }

  async function fill({ from, limits, bootID, hostname }: StartSpec, { kind, handle }: Precreated): Promise<void> {
    const { runtimeID, directory } = handle;
    if (from === undefined && hostname !== runtimeID) fail("INTERNAL", `precreated sandbox ${runtimeID} was made with its hostname and cannot be ${hostname}`);
    // The boot id is overwritten in place, since the sandbox has the file mounted already.
    await Promise.all([writeFile(join(directory, bootIDFile), `${bootID}\n`), from && stackLayers(spawner, from.directory, directory)]);
    await start({ runtimeID, directory, limits, from }, kind.program, from === undefined ? ["start"] : [...verbFor(from), "-hostname", hostname, "-detach"]);
    if (from !== undefined) await dropMerged(directory);
  }

  /** Runs a verb that creates a sandbox or starts it. */
  async function start(spec: Pick<StartSpec, "runtimeID" | "directory" | "limits" | "from">, program: string, verb: readonly string[]): Promise<void> {
    const { runtimeID, directory, limits, from } = spec;
    const logFile = join(directory, LOG);
    const argv = [program, ...runscFlags(stateRoot, directory, limits), ...verb, runtimeID];
    const timeoutMs = from === undefined ? START_TIMEOUT_MS : RESTORE_TIMEOUT_MS;
    const result =
      (await starters.finish(spec, [...verb, runtimeID], timeoutMs)) ??
      (await spawner.run(inGroup(cgroups.starterEntrances(runtimeID), argv), { outputFile: logFile, timeoutMs, cwd: directory }));
    if (result.code === 0) return;
    const last = await readFile(logFile, "utf8").catch(() => "");
    fail("SANDBOX_START_FAILED", `runsc ${verb[0]} ended with ${result.code ?? result.signal}: ${endOfOutput(last)}`);
  }

  async function started(pidFile: string, host: string): Promise<Started> {
    return { pid: await pidFrom(() => readFile(pidFile, "utf8")), endpoint: { kind: "tcp", host } };
  }

  /** Writes all files that runsc reads from the directory; returns the guest's address. */
  async function bundle(spec: StartSpec, program: string): Promise<string> {
    const { directory, network } = spec;
    if (network === undefined) fail("SANDBOX_START_FAILED", "the gvisor driver needs a network slot");
    await Promise.all([mkdir(stateRoot, { recursive: true, mode: 0o700 }), mkdir(join(directory, "upper"), { recursive: true })]);
    await Promise.all([prepare(spec, network.gatewayAddress), runsc.programs.note(directory, program)]);
    return network.guestAddress;
  }

  /** Writes the bundle: config.json and the files that it names. */
  async function prepare(spec: StartSpec, nameserver: string): Promise<void> {
    const { directory, limits, from } = spec;
    const bootID = join(directory, bootIDFile);
    const config = ociConfig({
      spec,
      rootPath: await rootWithMountPoints(spawner, spec),
      cgroupsPath: cgroups.pathOf(spec.runtimeID),
      capabilities: gvisorCapabilities,
      rlimits: [
        { type: "RLIMIT_NOFILE", hard: OPEN_FILES, soft: OPEN_FILES },
        { type: "RLIMIT_NPROC", hard: limits.pids, soft: limits.pids },
      ],
      // gVisor generates its own boot id, which a checkpoint would copy into every restored sandbox.
      extraMounts: [{ destination: "/proc/sys/kernel/random/boot_id", type: "bind", source: bootID, options: ["bind", "ro", "nosuid", "noexec", "nodev"] }],
      annotations: await annotationsFor(from),
    });
    // A restored sandbox has these files in its upper layer, where envd's /init renews them; runsc only opens the archive.
    const archive = from === undefined ? tarOf(identityFiles(spec.hostname, nameserver), Date.now()) : "";
    await Promise.all([
      writeFile(join(directory, "config.json"), JSON.stringify(config)),
      writeFile(bootID, `${spec.bootID}\n`, { mode: 0o444 }),
      writeFile(join(directory, identityArchive), archive),
      writeGuestLimits(directory, limits, cgroups.memoryFiles(spec.runtimeID), spec.from?.isForFiles === true),
    ]);
  }

  /**
   * Removes the same files as `runsc delete`, which would also kill processes by the ids that it noted: those processes have ended, and another
   * process may have such an id by now. Starting that program would cost a twentieth of a sandbox's whole life.
   */
  async function forget(runtimeID: string): Promise<void> {
    for (const name of await runsc.stateFiles(runtimeID)) await rm(join(stateRoot, name), { force: true });
  }

  return {
    name: "gvisor",
    pidsMax: ({ pids }) => pids * HOST_TASKS_PER_PROCESS + HOST_TASKS_ENDING + PIDS_HEADROOM,
    memoryMaxBytes: hardMemoryBytes,
    limitHits: guestLimitHits,
    checkpoints: new Set(["memory", "filesystem"]),
    launch,
    precreation: { kindOf, make: makePrecreated, fill },
    forget,
    freeze: freezer.freeze,
    thaw: freezer.thaw,
    checkpoint: openCheckpoint(spawner, runsc, kernel, freezer),
    exportLayer: openExport(runsc, freezer, spawner),
    known: runsc.known,
    sweepPrograms: runsc.programs.sweep,
    program: async () => basename(await runsc.programs.current()),
    diskBytes: async ({ directory }) => layerBytes(directory),
    async panicOf(directory) {
      const text = await readFile(join(directory, PANIC_LOG), "utf8").catch(() => "");
      return text === "" ? undefined : endOfOutput(text);
    },
    report: async (proof) => gvisorReport(proof, cgroups),
    close: () => unmountUnder(spawner, stateRoot), // The empty network namespace that the gofers share is pinned in this folder.
  };
}

/** runsc accepts the archive only for a first start, and requires a restore to name the annotations of the checkpointed sandbox. */
async function annotationsFor(from: StartSpec["from"]): Promise<Record<string, string>> {
  if (from === undefined) return firstAnnotations;
  return from.kind === "memory" ? checkpointedAnnotations(from) : {};
}

function verbFor(from: StartSpec["from"]): [string, ...string[]] {
  if (from === undefined) return ["run"];
  return from.kind === "memory" ? ["restore", "-image-path", from.directory] : ["run", "-fs-restore-image-path", from.directory];
}

/** Returns the flags before the verb; they are the same for every verb that starts a sandbox. */
export function runscFlags(stateRoot: string, directory: string, limits: Limits): string[] {
  return [
    `--root=${stateRoot}`,
    `--panic-log=${join(directory, PANIC_LOG)}`,
    "--platform=systrap",
    "--network=sandbox",
    "--host-settings=ignore",
    "--allow-suid", // sudo
    "--net-raw", // ping; an anti-spoof rule on the slot limits what root inside can send
    "--allow-live-tcp-migration=false", // ends connections to other hosts in a restored sandbox, but not those within it
    "--allow-rootfs-tar-annotation", // puts /etc/hosts and the other identity files into the upper layer, where they can be edited
    // runsc counts the bytes in the upper layer and answers ENOSPC at `size`.
    `--overlay2=root:dir=${join(directory, "upper")},size=${limits.diskSizeMB}m`,
  ];
}
