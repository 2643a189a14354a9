// What every sandbox runtime offers the node: start, destroy, inspect, list, probe.
import type { Socket } from "node:net";
import type { NetworkSlot } from "../network/networks.ts";

export const runtimeNames = ["gvisor", "runc", "bubblewrap"] as const;
export type RuntimeName = (typeof runtimeNames)[number];

/** Why a sandbox is no more; what users read in `reason`. */
export type DeathReason = "oom" | "killed" | "timeout" | "crashed" | "node_lost";

/** A root file system as it lies on disk; used read-only, below each sandbox's own upper layer. */
export type RootImage = {
  /** A plain directory, or the mount point of stacked layers (template/layers.ts makes sure of it before a start). */
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

/** What a checkpoint holds: processes, memory and files, or the files alone. */
export type CheckpointKind = "memory" | "filesystem";

export type Checkpoint = {
  /** Holds the files that `checkpoint` wrote, or found sealed (`SEALED`), and nothing else. */
  readonly directory: string;
  readonly kind: CheckpointKind;
  /** While it is written: the sandbox should stand still for as short as can be, rather than the whole be over soon. */
  readonly isBrief?: boolean | undefined;
};

/**
 * What a precreated sandbox is made for: a system of which all is there but what it runs. Only a start that agrees in all of it may use it,
 * so that none runs with another's limits.
 */
export type PrecreatedKind = Pick<StartSpec, "image" | "limits" | "envd"> & {
  /** The driver's program that makes it: memory goes on in the very one that wrote it. */
  readonly program: string;
};

/** Made, and nothing runs in it. No record names it before it is used: whoever finds one after a kill destroys it. */
export type Precreated = { readonly kind: PrecreatedKind; readonly handle: RuntimeHandle };

export type Precreation = {
  /** What a precreated sandbox for this start is made for; undefined where it has to be made for its own. */
  kindOf(spec: Pick<StartSpec, "image" | "limits" | "envd" | "from">): Promise<PrecreatedKind | undefined>;
  /** Leaves nothing behind when it throws. Its hostname is its id. */
  make(kind: PrecreatedKind, place: Pick<StartSpec, "runtimeID" | "directory" | "network">): Promise<Precreated>;
};

export type StartSpec = {
  /** Fixed length, [a-z0-9] only: runsc resolves ids by prefix. */
  readonly runtimeID: string;
  /** The sandbox's own directory under $SVC_HOME; everything the driver writes lies in it or is named by `runtimeID`. */
  readonly directory: string;
  readonly image: RootImage;
  readonly limits: Limits;
  readonly hostname: string;
  /**
   * What /proc/sys/kernel/random/boot_id says inside: a UUID. The same over a pause with memory, a new one wherever programs
   * shall see a boot: a first start, a start from files alone, each copy.
   */
  readonly bootID: string;
  /** Absent only for the unprivileged bubblewrap driver, which is reached through a unix socket. */
  readonly network: NetworkSlot | undefined;
  /** argv of PID 1 inside (envd at its path inside, with its flags), its environment, and the host's envd binary to mount. */
  readonly envd: { readonly binary: string; readonly args: readonly string[]; readonly env: Readonly<Record<string, string>> };
  /**
   * Go on from there instead of starting anew: `memory` with all processes, `filesystem` with the files and a new envd. The
   * image must be the one it was checkpointed over; for `memory` envd's binary and arguments and the limits, too: pages of a
   * running program that it never changed are read from its file again. The checkpoint is only read, by any number of starts at
   * once, and may be deleted when `start` has returned. Connections to anywhere outside are at an end in what starts from
   * memory (readers see the end, writers EPIPE), those from program to program inside go on. Identity files inside are those
   * of the checkpointed sandbox until envd's /init renews them.
   */
  readonly from?: Checkpoint | undefined;
  /**
   * Goes on in this precreated sandbox, on its network and in its directory, whether or not it bears its id: `destroy` with the id of the
   * sandbox finds it. The precreated sandbox is used up, also when the start fails.
   */
  readonly precreated?: Precreated | undefined;
};

/** All that is needed to find a started sandbox again after the node was killed; kept as JSON in its record. */
export type RuntimeHandle = {
  readonly runtime: RuntimeName;
  readonly runtimeID: string;
  readonly directory: string;
  /** The sandbox's first host process, and its start time in clock ticks: a pid alone may be reused. */
  readonly pid: number;
  readonly pidStartTicks: number;
  /** Where ports inside are reached: an address on the veth, or envd's unix socket (its relay reaches the other ports). */
  readonly endpoint: { readonly kind: "tcp"; readonly host: string } | { readonly kind: "unix"; readonly path: string };
  readonly network: NetworkSlot | undefined;
  /** Set where only one user exists inside (unprivileged, without a range of ids): commands run as this one, whatever the template says. */
  readonly onlyUser?: string;
};

/** How often a sandbox's limits took effect since its first process started. */
export type LimitHits = {
  /** Programs that were ended because memory ran out. */
  readonly memoryKills: number;
  /** Requests for memory that were refused. */
  readonly memoryRefusals: number;
  /** Processes and threads that were refused. */
  readonly taskRefusals: number;
  /** The program that was ended last, where the driver knows it. */
  readonly program?: string;
};

/** What the kernel says of a sandbox's use of memory, CPU and disk; bytes, nanoseconds. */
export type Usage = {
  readonly cpuNs: number;
  readonly memoryBytes: number;
  /** File pages, counted in `memoryBytes` as far as they are in use; absent where nothing tells. */
  readonly cacheBytes?: number;
  /** Where the host's kernel ends programs: the sandbox's limit, or a little more where its own kernel keeps that. */
  readonly memoryLimitBytes: number;
  readonly pids: number;
  readonly diskBytes: number;
};

export type Capability = { readonly works: boolean; readonly says: string; readonly fix?: string };

export type RuntimeReport = {
  readonly runtime: RuntimeName;
  /** Whether a sandbox can run with this driver on this host, proven by starting one where that is cheap. */
  readonly usable: Capability;
  readonly isolation: "kernel in user space" | "namespaces" | "unprivileged namespaces";
  readonly pauseWithMemory: Capability;
  /** A pause, or a snapshot, that keeps the files alone. */
  readonly pauseWithFiles: Capability;
  readonly limits: Capability;
  readonly diskLimit: Capability;
  readonly network: Capability;
  /** Measured megabytes for an idle sandbox, envd included; what `doctor` prints as density. */
  readonly idleMB: number;
};

export interface Runtime {
  readonly name: RuntimeName;
  /** Absent where the driver makes none. */
  readonly precreation?: Precreation | undefined;
  /** Returns when the sandbox's first process runs (not: when envd answers). Leaves nothing behind when it throws. */
  start(spec: StartSpec): Promise<RuntimeHandle>;
  /** Ends every process and removes mounts, cgroups and files of the sandbox; succeeds when there is nothing left to do. */
  destroy(handle: Pick<RuntimeHandle, "runtimeID" | "directory">): Promise<void>;
  /** Synchronous and cheap (a stat or two): called for every sandbox several times a second. */
  isAlive(handle: RuntimeHandle): boolean;
  /** A sandbox can outlive all of them. */
  limitHits(handle: RuntimeHandle): Promise<LimitHits>;
  /** Why a sandbox that is not alive any more died, asked before `destroy`: `oom` where more than `seen` programs were killed for memory, else `crashed`. */
  deathReason(handle: RuntimeHandle, seen?: number): Promise<"oom" | "crashed">;
  usage(handle: RuntimeHandle): Promise<Usage>;
  /** Removes the driver's programs of earlier versions, but those that these directories of sandboxes and checkpoints still need. */
  sweepPrograms(directories: readonly string[]): Promise<void>;
  /** Names, by its content, the program that memory checkpointed from now on needs; undefined where none is needed. */
  program(): Promise<string | undefined>;
  /** What `checkpoint` can do with this driver. */
  readonly checkpoints: ReadonlySet<CheckpointKind>;
  /** Stops all that runs inside where it stands; a frozen one stays frozen. Connections stall. */
  freeze(handle: RuntimeHandle): Promise<void>;
  /** Undoes `freeze`; one that is not frozen stays as it is. */
  thaw(handle: RuntimeHandle): Promise<void>;
  /**
   * Writes the sandbox as it is at one moment into `into.directory`, which is there and empty. Stops the sandbox meanwhile;
   * afterwards it goes on, unless it was frozen before, also when this throws; then the directory is empty again. The files
   * are not synced to disk: who means to keep them over a power cut syncs them.
   * @throws CHECKPOINT_FAILED, DISK_FULL, CHECKPOINT_UNAVAILABLE.
   */
  checkpoint(handle: RuntimeHandle, into: Checkpoint): Promise<void>;
  /**
   * Writes what differs from the template as an overlayfs layer into a directory that is there and empty: a character device
   * 0,0 for what was deleted, trusted.overlay.opaque on replaced directories, owners, modes, xattrs and hard links kept.
   * The node's own identity files (etc/hostname, hosts, resolv.conf, machine-id) are left out. Meant for template builds.
   */
  exportLayer(handle: RuntimeHandle, into: string): Promise<void>;
  /** Ids of all that this driver runs, or has left half-made, for this home: runtime state, mounts, cgroups, directories. */
  list(): Promise<string[]>;
  probe(): Promise<RuntimeReport>;
}

/** Dials a port inside a sandbox. */
export type Dial = (handle: RuntimeHandle, port: number) => Socket;
