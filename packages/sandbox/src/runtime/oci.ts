// The OCI config.json that gVisor and runc share; the differences between them are arguments.

import { bindMounts, defaultEnvironment, envdPathInside, tmpfsMounts } from "./rootfs.ts";
import type { StartSpec } from "./runtime.ts";
import type { SeccompProfile } from "./seccomp.ts";

export type OciParts = {
  readonly spec: StartSpec;
  /** The root file system: the template for gVisor (runsc adds its own upper layer), the stacked one for runc. */
  readonly rootPath: string;
  readonly cgroupsPath: string;
  readonly capabilities: readonly string[];
  readonly rlimits: readonly { readonly type: string; readonly hard: number; readonly soft: number }[];
  readonly annotations?: Readonly<Record<string, string>>;
  readonly extraMounts?: readonly OciMount[];
  readonly seccomp?: SeccompProfile;
  readonly hooks?: Readonly<Record<string, readonly { readonly path: string; readonly args: readonly string[] }[]>>;
};

export type OciMount = { readonly destination: string; readonly type: string; readonly source: string; readonly options: readonly string[] };

export type OciConfig = Readonly<Record<string, unknown>>;

/** Kernel interfaces that reveal the host's state or change it; gVisor has its own kernel and exposes none of them. */
// biome-ignore format: one list, read across
const maskedPaths = [
  "/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi",
  "/proc/sysrq-trigger", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware", "/sys/fs/bpf", "/sys/kernel/debug", "/sys/kernel/security",
];
const readonlyPaths = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"];

export function ociConfig(parts: OciParts): OciConfig {
  const { spec } = parts;
  const environment = { ...defaultEnvironment, HOSTNAME: spec.hostname, ...spec.envd.env };
  return {
    ociVersion: "1.0.2",
    process: {
      terminal: false,
      user: { uid: 0, gid: 0 },
      args: [envdPathInside, ...spec.envd.args],
      env: Object.entries(environment).map(([name, value]) => `${name}=${value}`),
      cwd: "/",
      capabilities: { bounding: parts.capabilities, effective: parts.capabilities, permitted: parts.capabilities, inheritable: [], ambient: [] },
      rlimits: parts.rlimits,
      // sudo inside must work; capabilities, seccomp and the sandbox itself bound the rights of root inside.
      noNewPrivileges: false,
    },
    root: { path: parts.rootPath, readonly: false },
    hostname: spec.hostname,
    mounts: [...systemMounts(spec), ...(parts.extraMounts ?? [])],
    ...(parts.annotations === undefined ? {} : { annotations: parts.annotations }),
    ...(parts.hooks === undefined ? {} : { hooks: parts.hooks }),
    linux: {
      namespaces: [
        ...["pid", "ipc", "uts", "mount", "cgroup"].map((type) => ({ type })),
        spec.network === undefined ? { type: "network" } : { type: "network", path: spec.network.netnsPath },
      ],
      // The group exists with its limits already; a runtime joins an existing group unchanged.
      cgroupsPath: parts.cgroupsPath,
      resources: {},
      maskedPaths,
      readonlyPaths,
      ...(parts.seccomp === undefined ? {} : { seccomp: parts.seccomp }),
    },
  };
}

function systemMounts(spec: StartSpec): OciMount[] {
  const tmpfs = tmpfsMounts(spec.limits).map(({ destination, mode, sizeBytes }) => ({
    destination,
    type: "tmpfs",
    source: "tmpfs",
    options: ["nosuid", "nodev", `mode=${mode.toString(8)}`, `size=${sizeBytes}`],
  }));
  const binds = bindMounts(spec.image, spec.envd.binary).map(({ source, destination }) => ({
    destination,
    type: "bind",
    source,
    options: ["bind", "ro", "nodev"],
  }));
  return [
    { destination: "/proc", type: "proc", source: "proc", options: ["nosuid", "noexec", "nodev"] },
    { destination: "/dev", type: "tmpfs", source: "tmpfs", options: ["nosuid", "strictatime", "mode=755", "size=65536k"] },
    {
      destination: "/dev/pts",
      type: "devpts",
      source: "devpts",
      options: ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5", "max=256"],
    },
    { destination: "/sys", type: "sysfs", source: "sysfs", options: ["nosuid", "noexec", "nodev", "ro"] },
    ...tmpfs,
    ...binds,
    ...(spec.volumes ?? []).map(({ source, path }) => ({
      destination: path,
      type: "bind",
      source,
      options: ["bind", "rw", "nosuid", "nodev"],
    })),
  ];
}
