// The operations that every sandbox runtime offers the node: start, destroy, inspect, list, probe.
import type { Socket } from "node:net";
import type { NetworkSlot } from "../network/networks.ts";

export const runtimeNames = ["gvisor", "runc", "bubblewrap"] as const;
export type RuntimeName = (typeof runtimeNames)[number];

/** The cause of a sandbox's death, which users read in `reason`. */
export type DeathReason = "oom" | "killed" | "timeout" | "crashed" | "node_lost";

/** A root file system on disk; used read-only, below each sandbox's own upper layer. */
export type RootImage = {
  /** A plain directory, or the mount point of stacked layers (template/layers.ts mounts them before a start). */
  readonly rootfs: string;
  /** Host directories mounted read-only at the same path (the `host` template binds /usr). */
  readonly binds: readonly string[];
};

export type Limits = {
  readonly cpuCount: number;
  readonly memoryMB: number;
  /** Size of the upper layer; a write past it fails inside with ENOSPC. */
  readonly diskSizeMB: number;
  readonly pids: number;
};

/** A checkpoint holds processes, memory and files, or the files alone. */
export type CheckpointKind = "memory" | "filesystem";

export type Checkpoint = {
  /** Contains only files that `checkpoint` wrote or found sealed (`SEALED`). */
  readonly directory: string;
  readonly kind: CheckpointKind;
  /** Only used while writing: minimizes how long the sandbox is stopped, at the cost of a longer checkpoint. */
  readonly isBrief?: boolean | undefined;
  /** Only used by a start: its files alone are wanted, so the processor may lack what the checkpointed programs use. */
  readonly isForFiles?: boolean | undefined;
};

/**
 * The fixed properties of a precreated sandbox, which is complete but runs nothing yet. Only a start that agrees in all of them may use it, so
 * that no sandbox runs with another's limits.
 */
export type PrecreatedKind = Pick<StartSpec, "image" | "limits" | "envd"> & {
  /** The driver's program that creates it: memory can only be restored by the same program that wrote it. */
  readonly program: string;
};

/** A sandbox that exists but runs nothing. No record names it before it is used, so a node that finds one after a kill destroys it. */
export type Precreated = { readonly kind: PrecreatedKind; readonly handle: RuntimeHandle };

export type Precreation = {
  /** Returns the kind of precreated sandbox that fits this start, or undefined if the start needs a sandbox created for it. */
  kindOf(spec: Pick<StartSpec, "image" | "limits" | "envd" | "from">): Promise<PrecreatedKind | undefined>;
  /** Leaves nothing behind when it throws. The hostname of the precreated sandbox is its id. */
  make(kind: PrecreatedKind, location: Pick<StartSpec, "runtimeID" | "directory" | "network">): Promise<Precreated>;
};

/** A volume that a sandbox mounts, as its record keeps it: by reference, also in its snapshots and forks. */
export type VolumeReference = { readonly volumeID: string; readonly name: string; readonly path: string };

/** A volume's directory on the host, and where the sandbox sees it. */
export type MountedVolume = { readonly source: string; readonly path: string };

export type StartSpec = {
  /** Fixed length, [a-z0-9] only, since runsc resolves ids by prefix. */
  readonly runtimeID: string;
  /** The sandbox's own directory under $SVC_HOME; all files of the driver are in it or named by `runtimeID`. */
  readonly directory: string;
  readonly image: RootImage;
  readonly limits: Limits;
  readonly hostname: string;
  /**
   * The UUID in /proc/sys/kernel/random/boot_id inside. It stays the same over a pause with memory, and changes wherever programs should notice
   * a boot: a first start, a start from files alone, each copy.
   */
  readonly bootID: string;
  /** Absent only for the unprivileged bubblewrap driver, which is reached through a unix socket. */
  readonly network: NetworkSlot | undefined;
  /** argv of PID 1 inside (envd at its path inside, with its flags), its environment, and the host's envd binary to mount. */
  readonly envd: { readonly binary: string; readonly args: readonly string[]; readonly env: Readonly<Record<string, string>> };
  /** Writable directories that other sandboxes may mount, too. A restore from memory names the same paths as the checkpointed sandbox. */
  readonly volumes?: readonly MountedVolume[] | undefined;
  /**
   * Restores this checkpoint instead of booting: `memory` with all processes, `filesystem` with the files and a new envd. The image must be the
   * one the checkpoint was taken over; for `memory` also envd's binary and arguments and the limits, since unmodified pages of a running program
   * are read from its file again. Any number of concurrent starts may read the checkpoint, which may be deleted when `start` has returned. After
   * a start from memory, connections to the outside are closed (readers see the end, writers EPIPE), and those between programs inside continue.
   * Identity files inside are those of the checkpointed sandbox until envd's /init renews them.
   */
  readonly from?: Checkpoint | undefined;
  /**
   * Starts in this precreated sandbox, on its network and in its directory, even if their ids differ: `destroy` with the sandbox's id finds it.
   * The precreated sandbox is used up, even when the start fails.
   */
  readonly precreated?: Precreated | undefined;
};

/** Everything needed to find a started sandbox again after the node was killed; kept as JSON in its record. */
export type RuntimeHandle = {
  readonly runtime: RuntimeName;
  readonly runtimeID: string;
  readonly directory: string;
  /** The sandbox's first host process and its start time in clock ticks, since a pid alone may be reused. */
  readonly pid: number;
  readonly pidStartTicks: number;
  /** The endpoint for ports inside: an address on the veth, or envd's unix socket (its relay reaches the other ports). */
  readonly endpoint: { readonly kind: "tcp"; readonly host: string } | { readonly kind: "unix"; readonly path: string };
  readonly network: NetworkSlot | undefined;
  /** Set where only one user exists inside (unprivileged, without a range of ids): all commands run as this user, regardless of the template. */
  readonly onlyUser?: string;
};

/** Counts how often a sandbox's limits took effect since its first process started. */
export type LimitHits = {
  /** Programs that were killed because memory ran out. */
  readonly memoryKills: number;
  /** Requests for memory that were refused. */
  readonly memoryRefusals: number;
  /** Processes and threads that were refused. */
  readonly taskRefusals: number;
  /** The program that was killed last, where the driver knows it. */
  readonly program?: string;
};

/** The kernel's measurements of a sandbox's memory, CPU and disk use, in bytes and nanoseconds. */
export type Usage = {
  readonly cpuNs: number;
  readonly memoryBytes: number;
  /** File pages, included in `memoryBytes` as far as they are in use; absent where no source reports them. */
  readonly cacheBytes?: number;
  /** The limit at which the host's kernel kills programs: the sandbox's limit, or a little more where its own kernel enforces that. */
  readonly memoryLimitBytes: number;
  readonly pids: number;
  readonly diskBytes: number;
};

export type Capability = { readonly works: boolean; readonly says: string; readonly fix?: string };

export type RuntimeReport = {
  readonly runtime: RuntimeName;
  /** Says whether a sandbox can run with this driver on this host, proven by starting one where that is cheap. */
  readonly usable: Capability;
  readonly isolation: "kernel in user space" | "namespaces" | "unprivileged namespaces";
  readonly pauseWithMemory: Capability;
  /** A pause or a snapshot that keeps the files alone. */
  readonly pauseWithFiles: Capability;
  readonly limits: Capability;
  readonly diskLimit: Capability;
  readonly network: Capability;
  /** Measured megabytes for an idle sandbox, including envd; `doctor` prints it as density. */
  readonly idleMB: number;
};

export interface Runtime {
  readonly name: RuntimeName;
  /** Absent where the driver cannot precreate sandboxes. */
  readonly precreation?: Precreation | undefined;
  /** Returns when the sandbox's first process runs, which is before envd answers. Leaves nothing behind when it throws. */
  start(spec: StartSpec): Promise<RuntimeHandle>;
  /** Kills every process and removes mounts, cgroups and files of the sandbox; succeeds if there is nothing to remove. */
  destroy(handle: Pick<RuntimeHandle, "runtimeID" | "directory">): Promise<void>;
  /** Synchronous and cheap (a stat or two), since it is called for every sandbox several times a second. */
  isAlive(handle: RuntimeHandle): boolean;
  /** A sandbox can survive any of these events. */
  limitHits(handle: RuntimeHandle): Promise<LimitHits>;
  /** Returns why a sandbox died, and must be called before `destroy`: `oom` if more than `seen` programs were killed for memory, else `crashed`. */
  deathReason(handle: RuntimeHandle, seen?: number): Promise<"oom" | "crashed">;
  usage(handle: RuntimeHandle): Promise<Usage>;
  /** Removes the driver's programs of earlier versions, except those that these directories of sandboxes and checkpoints need. */
  sweepPrograms(directories: readonly string[]): Promise<void>;
  /** Returns the content-based name of the program that new memory checkpoints will need, or undefined if they need none. */
  program(): Promise<string | undefined>;
  /** The kinds of checkpoint that this driver can write. */
  readonly checkpoints: ReadonlySet<CheckpointKind>;
  /** Stops everything inside at its current instruction; a frozen sandbox stays frozen. Connections stall. */
  freeze(handle: RuntimeHandle): Promise<void>;
  /** Undoes `freeze`; does nothing to a sandbox that is not frozen. */
  thaw(handle: RuntimeHandle): Promise<void>;
  /**
   * Writes the sandbox's state at one moment into `into.directory`, which must exist and be empty. The sandbox is stopped meanwhile and resumes
   * afterwards, unless it was frozen before. If this throws, the sandbox resumes too, and the directory is empty again. The files are not synced
   * to disk: a caller that needs them after a power cut must sync them.
   * @throws CHECKPOINT_FAILED, DISK_FULL, CHECKPOINT_UNAVAILABLE.
   */
  checkpoint(handle: RuntimeHandle, into: Checkpoint): Promise<void>;
  /**
   * Writes the difference from the template as an overlayfs layer into an existing empty directory: a character device 0,0 marks a deletion,
   * trusted.overlay.opaque a replaced directory, and owners, modes, xattrs and hard links are kept. The node's own identity files (etc/hostname,
   * hosts, resolv.conf, machine-id) are left out. Template builds use it.
   */
  exportLayer(handle: RuntimeHandle, into: string): Promise<void>;
  /** Returns the ids of everything that this driver runs, or left half-made, for this home: runtime state, mounts, cgroups, directories. */
  list(): Promise<string[]>;
  probe(): Promise<RuntimeReport>;
}

/** Dials a port inside a sandbox. */
export type Dial = (handle: RuntimeHandle, port: number) => Socket;
