// Freezing and checkpoints for a plain user, who has no control groups: stop signals, and the layer as the sandbox's namespaces see it.
import { readdir, readFile, readlink, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import { layerArchive } from "./disk.ts";
import type { Engine } from "./driver.ts";
import { copyScript, packScript, runCopy } from "./layer-archive.ts";
import { eventually } from "./process.ts";
import type { RuntimeHandle } from "./runtime.ts";

const FREEZE_BOUND_MS = 10_000;
/** One scan of /proc may miss the last child of a process that stopped during the scan. */
const STILL_LOOKS = 2;

type Part = Pick<Engine, "checkpoints" | "freeze" | "thaw" | "checkpoint" | "exportLayer">;
type Process = { readonly pid: number; readonly state: string };

export function rootlessCheckpoints(spawner: Spawner): Part {
  /** This file exists while frozen; it names the processes that somebody inside had stopped before, which stay stopped. */
  const markOf = ({ directory }: RuntimeHandle) => join(directory, "frozen");

  /** Runs a script as root of the sandbox's user namespace, where its layer is mounted and bubblewrap's own process remains. */
  async function inside(handle: RuntimeHandle, script: string, ...rest: string[]): Promise<void> {
    const argv = [
      "nsenter",
      `--target=${await parentOf(handle.pid)}`,
      "--user",
      "--mount",
      "--preserve-credentials",
      "--",
      "/bin/sh",
      "-c",
      script,
      "sh",
      ...rest,
    ];
    await runCopy(spawner, argv);
  }

  async function signalAll(handle: RuntimeHandle, name: "STOP" | "CONT", pids: readonly number[]): Promise<void> {
    if (pids.length === 0) return;
    // A process that has ended meanwhile is not a failure.
    await inside(handle, `kill -${name} "$@" 2>/dev/null || true`, ...pids.map(String));
  }

  async function freeze(handle: RuntimeHandle): Promise<void> {
    if ((await stoppedBefore(markOf(handle))) !== undefined) return;
    const before = (await membersOf(handle.pid)).filter(({ state }) => state === "T").map(({ pid }) => pid);
    await writeFile(markOf(handle), JSON.stringify(before));
    let stillLooks = 0;
    const stands = await eventually(async () => {
      const moving = (await membersOf(handle.pid)).filter(({ state }) => !STANDING.includes(state)).map(({ pid }) => pid);
      await signalAll(handle, "STOP", moving);
      stillLooks = moving.length === 0 ? stillLooks + 1 : 0;
      return stillLooks === STILL_LOOKS;
    }, FREEZE_BOUND_MS);
    if (stands) return;
    await thaw(handle);
    fail("TIMED_OUT", `sandbox ${handle.runtimeID} could not be frozen within ${FREEZE_BOUND_MS} ms`);
  }

  async function thaw(handle: RuntimeHandle): Promise<void> {
    const before = await stoppedBefore(markOf(handle));
    if (before === undefined) return;
    const pids = (await membersOf(handle.pid)).map(({ pid }) => pid).filter((pid) => !before.includes(pid));
    await signalAll(handle, "CONT", pids);
    await rm(markOf(handle), { force: true });
  }

  async function whileFrozen(handle: RuntimeHandle, work: () => Promise<void>): Promise<void> {
    if ((await stoppedBefore(markOf(handle))) !== undefined) return work();
    await freeze(handle);
    try {
      await work();
    } finally {
      await thaw(handle);
    }
  }

  const upperOf = ({ directory }: RuntimeHandle) => join(directory, "layer/upper");
  return {
    checkpoints: new Set(["filesystem"]),
    freeze,
    thaw,
    checkpoint: (handle, into) => whileFrozen(handle, () => inside(handle, packScript, join(into.directory, layerArchive), upperOf(handle))),
    exportLayer: (handle, into) => whileFrozen(handle, () => inside(handle, copyScript, upperOf(handle), into)),
  };
}

async function stoppedBefore(mark: string): Promise<number[] | undefined> {
  const text = await readFile(mark, "utf8").catch(() => undefined);
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text) as number[];
  } catch {
    return []; // the mark was cut off while it was written
  }
}

async function statOf(pid: number | string): Promise<string[]> {
  const stat = await readFile(`/proc/${pid}/stat`, "latin1").catch(() => "");
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ");
}

const STANDING = "TtZX";

/** Returns the state of a thread that still runs, if there is one, since a stop signal reaches threads one by one. */
async function stateOf(pid: string): Promise<string> {
  const tasks = await readdir(`/proc/${pid}/task`).catch(() => []);
  const states = await Promise.all(tasks.map(async (task) => (await statOf(`${pid}/task/${task}`))[0] || "X"));
  return states.find((state) => !STANDING.includes(state)) ?? states[0] ?? "X";
}

async function parentOf(pid: number): Promise<number> {
  const parent = Number((await statOf(pid))[1]);
  return parent > 1 ? parent : fail("CHECKPOINT_FAILED", `process ${pid} is not a bubblewrap sandbox that still has its starter`);
}

/** Returns every process of the sandbox's pid namespace. */
async function membersOf(first: number): Promise<Process[]> {
  const namespaceOf = (pid: number | string) => readlink(`/proc/${pid}/ns/pid`).catch(() => undefined);
  const own = await namespaceOf(first);
  if (own === undefined) return [];
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const found = await Promise.all(pids.map(async (pid) => ((await namespaceOf(pid)) === own ? [{ pid: Number(pid), state: await stateOf(pid) }] : [])));
  return found.flat();
}
