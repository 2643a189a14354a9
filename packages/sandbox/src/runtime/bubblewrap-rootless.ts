// The bubblewrap driver for a plain user: everything lives in a user namespace, and envd answers on a unix socket.
import { createHash } from "node:crypto";
import { access, mkdir, readdir, readFile, readlink, statfs } from "node:fs/promises";
import { userInfo } from "node:os";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { bwrapOptions, launchAndReadPid, launchScript, writeLaunchFiles } from "./bubblewrap.ts";
import { layerArchive } from "./disk.ts";
import type { Engine } from "./driver.ts";
import type { Host } from "./host.ts";
import { identityFiles, writeTree } from "./identity.ts";
import { unpackScript } from "./layer-archive.ts";
import { withoutLinks } from "./mount-points.ts";
import { eventually, isSameProcess, type ProcessIdentity, signal, startTicksOf } from "./process.ts";
import { findProgram, lookForProgram } from "./programs.ts";
import { rootlessReport } from "./reports.ts";
import { defaultEnvironment, envdPathInside, socketPathInside } from "./rootfs.ts";
import { rootlessCheckpoints } from "./rootless-checkpoint.ts";
import type { RuntimeHandle, StartSpec } from "./runtime.ts";

/**
 * Marks every process of a start, from the first shell to envd, with its home and id: without control groups only this mark shows which sandbox
 * owns a process.
 */
const markVariable = "SVC_RUNTIME_ID";
/** One scan of /proc misses a process that is calling exec at that moment, and the child of a process that ended during the scan. */
const EMPTY_LOOKS = 3;
const KILL_BOUND_MS = 10_000;
const SOCKET_BOUND_MS = 10_000;
const CLOCK_TICKS_PER_SECOND = 100;
const PAGE_BYTES = 4096;

/**
 * Runs inside a fresh user and mount namespace. The upper layer is a tmpfs, since no other file system that a plain user can mount has a size
 * limit. Home directories of the template that another id owns are covered by writable ones; if the template belongs to the caller, root inside
 * owns all of it, so `user` is given its home. Arguments: directory, rootfs, size in MiB, processes, archive or an empty string, then the
 * command to run.
 */
const namespaceScript = `set -e
dir=$1 rootfs=$2 size=$3 pids=$4 archive=$5
shift 5
unpack() { ${unpackScript}; }
mount -t tmpfs -o "nodev,mode=755,size=$size"m tmpfs "$dir/layer"
mkdir "$dir/layer/upper" "$dir/layer/work"
chmod 755 "$dir/layer/upper"
if [ -n "$archive" ]; then unpack "$archive" "$dir/layer/upper"; else cp -a "$dir/identity/." "$dir/layer/upper/"; fi
nobody=$(cat /proc/sys/kernel/overflowuid)
for home in root home/user var/tmp; do
  [ "$(stat -c %u "$rootfs/$home" 2>/dev/null)" != "$nobody" ] || { mkdir -p "$dir/layer/upper/$home"; chmod 1777 "$dir/layer/upper/$home"; }
done
mount -t overlay -o "userxattr,lowerdir=$rootfs,upperdir=$dir/layer/upper,workdir=$dir/layer/work" overlay "$dir/root"
owner=$(sed -n 's/^user:[^:]*:\\([0-9]*\\):\\([0-9]*\\):.*/\\1:\\2/p' "$dir/root/etc/passwd" 2>/dev/null) || owner=
if [ -n "$owner" ] && [ "$(wc -l </proc/self/uid_map)" -gt 1 ] && [ "$(stat -c %u "$dir/root/home/user" 2>/dev/null)" = 0 ]; then
  chown -R "$owner" "$dir/root/home/user"
fi
exec prlimit --nproc="$pids" -- "$@"`;

/** Capabilities over the ids of the user namespace; none of them has an effect outside it. */
const capabilities = [
  "CAP_CHOWN",
  "CAP_DAC_OVERRIDE",
  "CAP_FOWNER",
  "CAP_FSETID",
  "CAP_KILL",
  "CAP_SETGID",
  "CAP_SETUID",
  "CAP_SETPCAP",
  "CAP_NET_BIND_SERVICE",
  "CAP_SYS_CHROOT",
];

export function rootlessEngine(host: Host): Engine {
  const { spawner } = host;
  const homeMark = `${createHash("sha256").update(host.home).digest("hex").slice(0, 16)}.`;

  async function launch(spec: StartSpec): Promise<Pick<RuntimeHandle, "pid" | "endpoint">> {
    const { runtimeID, directory, limits } = spec;
    if (spec.network !== undefined) fail("SANDBOX_START_FAILED", "without root there is no network slot; the sandbox is reached through a unix socket");
    await Promise.all(["layer", "root"].map((name) => mkdir(join(directory, name), { recursive: true })));
    const [program, mapping, volumes] = await Promise.all([
      findProgram("bwrap", host.programs?.bwrap),
      idMapping(),
      withoutLinks(spec),
      writeTree(join(directory, "identity"), identityFiles(spec.hostname, undefined)),
      writeLaunchFiles(spec),
    ]);
    const marked: StartSpec = { ...spec, volumes, envd: { ...spec.envd, env: { ...spec.envd.env, [markVariable]: homeMark + runtimeID } } };
    const svcFolder = ["--perms", "0755", "--size", String(64 * 1024), "--tmpfs", "/.svc"];
    const options = [
      ...bwrapOptions(marked, join(directory, "root"), directory, svcFolder),
      "--unshare-net",
      "--cap-drop",
      "ALL",
      ...capabilities.flatMap((name) => ["--cap-add", name]),
    ];
    const bwrap = [program, ...options, "--", envdPathInside, ...envdArguments(spec.envd.args, mapping)];
    const inside = [
      "unshare",
      "--user",
      ...mapping,
      "--mount",
      "--propagation",
      "private",
      "--",
      "/bin/sh",
      "-c",
      namespaceScript,
      "sh",
      directory,
      spec.image.rootfs,
      String(limits.diskSizeMB),
      String(limits.pids),
      spec.from === undefined ? "" : join(spec.from.directory, layerArchive),
      ...bwrap,
    ];
    const argv = ["/bin/sh", "-c", launchScript, "sh", join(directory, "info.json"), join(directory, "filter.bpf"), ...inside];
    const pid = await launchAndReadPid(spawner, argv, directory, {
      PATH: `${process.env.PATH ?? ""}:${defaultEnvironment.PATH}`,
      [markVariable]: homeMark + runtimeID,
    });
    const path = `/proc/${pid}/root${socketPathInside}`;
    const listens = () =>
      access(path).then(
        () => true,
        () => false,
      );
    // bubblewrap reports the pid before it mounts anything, so only envd's socket proves the mounts.
    if (!(await eventually(listens, SOCKET_BOUND_MS)))
      fail("SANDBOX_START_FAILED", `envd made no socket: ${(await readFile(join(directory, "bwrap.log"), "utf8").catch(() => "")).slice(-500)}`);
    return { pid, endpoint: { kind: "unix", path }, ...(isAlone(mapping) ? { onlyUser: "root" } : {}) };
  }

  return {
    name: "bubblewrap",
    pidsMax: undefined,
    launch,
    async forget(runtimeID) {
      let emptyLooks = 0;
      // A process that is exiting has no environment any more and still keeps mounts alive, so its identity is remembered here.
      const killed: ProcessIdentity[] = [];
      const ended = await eventually(async () => {
        const left = (await markedProcesses(homeMark)).filter((each) => each.runtimeID === runtimeID);
        // Killing the first process ends its whole pid namespace.
        for (const { pid } of left) {
          const startTicks = startTicksOf(pid);
          if (startTicks !== undefined) killed.push({ pid, startTicks });
          signal(pid, "SIGKILL");
        }
        emptyLooks = left.length === 0 && !killed.some(isSameProcess) ? emptyLooks + 1 : 0;
        return emptyLooks === EMPTY_LOOKS;
      }, KILL_BOUND_MS);
      if (!ended) fail("INTERNAL", `sandbox ${runtimeID}: processes outlive SIGKILL for ${KILL_BOUND_MS} ms`);
    },
    async diskBytes({ pid }) {
      const { blocks, bfree, bsize } = await statfs(`/proc/${pid}/root/`).catch(() => ({ blocks: 0, bfree: 0, bsize: 0 }));
      return (blocks - bfree) * bsize;
    },
    ...rootlessCheckpoints(spawner),
    usage: (handle) => namespaceUsage(handle.pid),
    known: async () => [...new Set((await markedProcesses(homeMark)).map(({ runtimeID }) => runtimeID))],
    report: async (proof) => rootlessReport(proof, (await idMapping()).includes("--map-auto")),
    close: async () => {},
  };
}

/** Says whether the caller's own id, which is root inside, is the only user there. */
const isAlone = (mapping: readonly string[]): boolean => !mapping.includes("--map-auto");

/** Maps a range of ids where the host grants one, so that `user` and root inside are different users; otherwise only the caller's own id. */
export async function idMapping(): Promise<string[]> {
  const tools = await Promise.all(["newuidmap", "newgidmap"].map((name) => lookForProgram(name)));
  const granted = await Promise.all(["/etc/subuid", "/etc/subgid"].map((path) => readFile(path, "utf8").catch(() => "")));
  const name = nameOfUser();
  // unshare looks up the granted range by user name, so an id without a name gets no range.
  const ranges = name !== undefined && granted.every((text) => text.split("\n").some((line) => line.startsWith(`${name}:`)));
  return ["--map-root-user", ...(tools.every(Boolean) && ranges ? ["--map-auto"] : [])];
}

function nameOfUser(): string | undefined {
  try {
    return userInfo().username;
  } catch {
    return undefined;
  }
}

/** Replaces the address of `-listen` by a unix path; where root is the only user inside, commands run as root. */
function envdArguments(args: readonly string[], mapping: readonly string[]): string[] {
  const at = args.findIndex((arg) => arg === "-listen" || arg === "--listen");
  const rest = at < 0 ? [...args] : args.filter((_, index) => index !== at && index !== at + 1);
  const alone = isAlone(mapping) && !rest.includes("-default-user");
  return ["-listen", `unix:${socketPathInside}`, ...(alone ? ["-default-user", "root"] : []), ...rest];
}

async function markedProcesses(homeMark: string): Promise<{ pid: number; runtimeID: string }[]> {
  const mark = `${markVariable}=${homeMark}`;
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const found = await Promise.all(
    pids.map(async (pid) => {
      const environment = await readFile(`/proc/${pid}/environ`, "latin1").catch(() => "");
      const runtimeID = environment
        .split("\0")
        .find((text) => text.startsWith(mark))
        ?.slice(mark.length);
      return runtimeID === undefined ? [] : [{ pid: Number(pid), runtimeID }];
    }),
  );
  return found.flat();
}

/** Sums over all processes of the sandbox's pid namespace. */
async function namespaceUsage(first: number): Promise<{ cpuNs: number; memoryBytes: number; memoryLimitBytes: number; pids: number }> {
  const namespaceOf = (pid: number | string) => readlink(`/proc/${pid}/ns/pid`).catch(() => undefined);
  const own = await namespaceOf(first);
  const sum = { cpuNs: 0, memoryBytes: 0, memoryLimitBytes: 0, pids: 0 };
  if (own === undefined) return sum;
  for (const pid of (await readdir("/proc")).filter((name) => /^\d+$/.test(name))) {
    if ((await namespaceOf(pid)) !== own) continue;
    const [stat, memory] = await Promise.all([
      readFile(`/proc/${pid}/stat`, "latin1").catch(() => ""),
      readFile(`/proc/${pid}/statm`, "latin1").catch(() => ""),
    ]);
    const fields = stat
      .slice(stat.lastIndexOf(")") + 2)
      .split(" ")
      .map(Number);
    sum.cpuNs += (((fields[11] ?? 0) + (fields[12] ?? 0)) * 1e9) / CLOCK_TICKS_PER_SECOND;
    sum.memoryBytes += (Number(memory.split(" ")[1]) || 0) * PAGE_BYTES;
    sum.pids += 1;
  }
  return sum;
}
