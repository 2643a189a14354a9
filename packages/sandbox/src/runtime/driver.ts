// The parts that all drivers share: a failed start leaves nothing behind, destroy has a fixed order, and list finds what is left.
import { access, mkdir, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { diskFull, fail } from "@svc/contract/failures.ts";
import { emptied, mustBeEmpty, mustOffer } from "./checkpoint.ts";
import { checkpointFailure, startFailure, wasDiskFull } from "./driver-failures.ts";
import type { Host } from "./host.ts";
import { unmountUnder } from "./mounts.ts";
import { keyOfKind } from "./precreated-kind.ts";
import { eventually, isSameProcess, startTicksOf } from "./process.ts";
import { type Proof, prove } from "./prove.ts";
import type {
  Checkpoint,
  CheckpointKind,
  LimitHits,
  Limits,
  Precreated,
  PrecreatedKind,
  Precreation,
  Runtime,
  RuntimeHandle,
  RuntimeName,
  RuntimeReport,
  StartSpec,
  Usage,
} from "./runtime.ts";

type Parts = Pick<RuntimeHandle, "runtimeID" | "directory">;
type Started = Pick<RuntimeHandle, "pid" | "endpoint" | "onlyUser">;
/** The identity of a sandbox, or of a precreated sandbox, that is about to be made. */
export type Location = Pick<StartSpec, "runtimeID" | "directory" | "network">;

/** The operations that differ between drivers. */
export type Engine = {
  readonly name: RuntimeName;
  /** The control group's bound on processes; undefined where this driver has no control groups. */
  readonly pidsMax: ((limits: Limits) => number) | undefined;
  /** The control group's bound on memory, if it differs from the sandbox's limit. */
  memoryMaxBytes?(limits: Limits): number;
  /** Counts the kills and refusals of the sandbox's own kernel, in addition to the host's. */
  limitHits?(directory: string): Promise<LimitHits>;
  /** Prepares the sandbox's mounts and starts it; group, mark and directory exist already. */
  launch(spec: StartSpec): Promise<Started>;
  /** `make` finds group, mark and directory in place, too; `fill` is the `launch` of a precreated sandbox. */
  readonly precreation?: Pick<Precreation, "kindOf"> & {
    make(kind: PrecreatedKind, location: Location): Promise<Started>;
    fill(spec: StartSpec, precreated: Precreated): Promise<void>;
  };
  /** Removes the runtime's own record of a sandbox, and everything that the control group does not cover; called after the members were killed. */
  forget(runtimeID: string, directory: string): Promise<void>;
  /** Waits until the host has released the resources of the removed directory. */
  released?(directory: string): Promise<void>;
  /** The kinds that `checkpoint` can write and `launch` can restore. */
  readonly checkpoints: ReadonlySet<CheckpointKind>;
  freeze(handle: RuntimeHandle): Promise<void>;
  thaw(handle: RuntimeHandle): Promise<void>;
  /** May leave a partial checkpoint if it throws. */
  checkpoint(handle: RuntimeHandle, into: Checkpoint): Promise<void>;
  exportLayer(handle: RuntimeHandle, into: string): Promise<void>;
  diskBytes(handle: RuntimeHandle): Promise<number>;
  /** See `Runtime.sweepPrograms`. */
  sweepPrograms?(directories: readonly string[]): Promise<void>;
  /** See `Runtime.program`. */
  program?(): Promise<string>;
  /** Returns the last message of the sandbox's own kernel, if it died of a defect. */
  panicOf?(directory: string): Promise<string | undefined>;
  /** Only for drivers without control groups. */
  usage?(handle: RuntimeHandle): Promise<Omit<Usage, "diskBytes">>;
  /** Returns the ids in the runtime's own records. */
  known(): Promise<string[]>;
  /** Describes the driver; `proof` says whether a trial sandbox worked. */
  report(proof: Proof): Promise<RuntimeReport>;
  /** Removes everything that the sandboxes of the home share. */
  close(): Promise<void>;
};

export type OpenRuntime = Runtime & {
  /** Leaves sandboxes running; `everything` ends them and removes all that the driver made in this home. */
  close(options?: { readonly everything?: boolean }): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

/** runsc resolves ids by prefix, and runc names folders after them. */
const runtimeIDPattern = /^[a-z0-9]{8,32}$/;

export function openDriver(host: Host, engine: Engine): OpenRuntime {
  const { cgroups, marks, spawner } = host;

  async function start(spec: StartSpec): Promise<RuntimeHandle> {
    const { runtimeID, directory, precreated, from } = spec;
    await check(spec);
    if (from !== undefined) {
      mustOffer(engine, from.kind, runtimeID);
      await mustExist(from.directory, "the checkpoint to start from");
    }
    const parts: [Parts, ...Parts[]] = precreated === undefined || precreated.handle.runtimeID === runtimeID ? [spec] : [spec, precreated.handle];
    return orDestroy(parts, from?.directory, async () => {
      if (precreated !== undefined) return fill(spec, precreated);
      await marks.set(runtimeID, directory);
      return make(spec, spec.limits, () => engine.launch(spec));
    });
  }

  async function makePrecreated(kind: PrecreatedKind, location: Location): Promise<Precreated> {
    const { precreation } = engine;
    if (precreation === undefined) fail("INTERNAL", `the ${engine.name} driver does not support precreated sandboxes`);
    await check({ ...kind, ...location });
    return orDestroy([location], undefined, async () => {
      await marks.set(location.runtimeID, location.directory);
      return { kind, handle: await make(location, kind.limits, () => precreation.make(kind, location)) };
    });
  }

  async function check({ runtimeID, image, envd }: Pick<StartSpec, "runtimeID" | "image" | "envd">): Promise<void> {
    if (!runtimeIDPattern.test(runtimeID)) fail("INTERNAL", `runtime id "${runtimeID}" is not 8 to 32 characters of a-z and 0-9`);
    await mustExist(image.rootfs, "the template's root file system");
    await mustExist(envd.binary, "envd");
  }

  /** Destroys `parts` if `work` throws. */
  async function orDestroy<T>(parts: readonly [Parts, ...Parts[]], from: string | undefined, work: () => Promise<T>): Promise<T> {
    const [{ runtimeID, directory }] = parts;
    try {
      return await work();
    } catch (cause) {
      const error = (await wasDiskFull(cause, directory, from)) ? diskFull(cause) : cause;
      for (const each of parts) {
        await destroy(each).catch((left: unknown) => {
          host.log.error({ err: left, runtimeID: each.runtimeID }, "a sandbox that did not start could not be removed; the next start of the node tries again");
        });
      }
      throw startFailure(runtimeID, error);
    }
  }

  async function make({ runtimeID, directory, network }: Location, limits: Limits, launch: () => Promise<Started>): Promise<RuntimeHandle> {
    await mkdir(directory, { recursive: true, mode: 0o711 });
    if (engine.pidsMax !== undefined) {
      const memoryBytes = engine.memoryMaxBytes?.(limits) ?? limits.memoryMB * 1024 * 1024;
      await cgroups.create(runtimeID, limits, { pidsMax: engine.pidsMax(limits), memoryBytes });
    }
    const { pid, ...found } = await launch();
    const pidStartTicks = startTicksOf(pid);
    if (pidStartTicks === undefined) fail("SANDBOX_START_FAILED", `sandbox ${runtimeID} ended at once; its envd could not start`);
    return { runtime: engine.name, runtimeID, directory, pid, pidStartTicks, ...found, network };
  }

  async function fill(spec: StartSpec, precreated: Precreated): Promise<RuntimeHandle> {
    const { kind, handle } = precreated;
    // From here on, destroying the sandbox also destroys the precreated one, even if another process has to do it.
    if (spec.runtimeID !== handle.runtimeID) await marks.setPrecreated(spec.runtimeID, handle.runtimeID);
    const wanted = await engine.precreation?.kindOf(spec);
    if (engine.precreation === undefined || wanted === undefined || keyOfKind(wanted) !== keyOfKind(kind))
      fail("INTERNAL", `sandbox ${spec.runtimeID} was given a precreated sandbox of another kind`);
    await engine.precreation.fill(spec, precreated);
    if (!isAlive(handle)) fail("SANDBOX_START_FAILED", `sandbox ${spec.runtimeID} ended at once; its envd could not start`);
    return handle;
  }

  async function destroy({ runtimeID, directory }: Parts): Promise<void> {
    if (!runtimeIDPattern.test(runtimeID)) return; // never an id of ours, and it could name a path outside our folders
    const precreatedID = await marks.precreatedOf(runtimeID);
    if (precreatedID !== undefined && runtimeIDPattern.test(precreatedID))
      await destroy({ runtimeID: precreatedID, directory: join(dirname(directory), precreatedID) });
    const marked = await marks.directoryOf(runtimeID);
    const directories = [...new Set([directory, ...(marked === undefined ? [] : [marked])])];
    // The processes of the control group are killed first: in a group without memory left they may never end by themselves, and the runtime would wait.
    await cgroups.remove(runtimeID);
    for (const each of directories) await engine.forget(runtimeID, each);
    // The runtime may have made groups of its own, or a starter that outlived its node may have refilled one.
    await cgroups.remove(runtimeID);
    for (const each of directories) {
      await unmountUnder(spawner, each);
      await rm(each, { recursive: true, force: true, maxRetries: 5 });
      await engine.released?.(each);
    }
    await marks.clear(runtimeID);
  }

  async function list(): Promise<string[]> {
    const [marked, known, groups, everyMark] = await Promise.all([marks.list(), engine.known(), cgroups.list(), host.allMarked()]);
    const taken = new Set(await Promise.all(marked.map((id) => marks.precreatedOf(id))));
    // A group without any driver's mark has no other owner, so any caller may remove it.
    return [...new Set([...marked, ...known, ...groups.filter((id) => !everyMark.has(id))])].filter((id) => !taken.has(id)).sort();
  }

  async function close(options: { readonly everything?: boolean } = {}): Promise<void> {
    if (options.everything !== true) {
      // The shared parts are only removed when no sandbox is left that uses them.
      if ((await list()).length === 0) await engine.close();
      return;
    }
    for (const runtimeID of await list()) await destroy({ runtimeID, directory: (await marks.directoryOf(runtimeID)) ?? host.folder });
    await engine.close();
    await unmountUnder(spawner, host.folder);
    await rm(host.folder, { recursive: true, force: true });
    if ((await host.allMarked()).size === 0) await cgroups.close();
  }

  function mustLive(handle: RuntimeHandle): void {
    if (!isAlive(handle)) fail("SANDBOX_NOT_RUNNING", `sandbox ${handle.runtimeID} has no first process any more`);
  }

  async function checkpoint(handle: RuntimeHandle, into: Checkpoint): Promise<void> {
    mustOffer(engine, into.kind, handle.runtimeID);
    await writeInto(handle, into.directory, () => engine.checkpoint(handle, into));
  }

  /** Leaves either the whole result or nothing in the directory. */
  async function writeInto(handle: RuntimeHandle, directory: string, write: () => Promise<void>): Promise<void> {
    mustLive(handle);
    await mustBeEmpty(directory);
    try {
      await write();
    } catch (error) {
      await emptied(directory);
      throw checkpointFailure(handle.runtimeID, error);
    }
  }

  function isAlive({ pid, pidStartTicks }: RuntimeHandle): boolean {
    try {
      return isSameProcess({ pid, startTicks: pidStartTicks });
    } catch {
      return true; // not known to be dead; the caller asks again soon
    }
  }

  async function limitHits({ runtimeID, directory }: RuntimeHandle): Promise<LimitHits> {
    const [host, own] = await Promise.all([cgroups.limitHits(runtimeID), engine.limitHits?.(directory)]);
    if (own === undefined) return host;
    return {
      ...own,
      memoryKills: host.memoryKills + own.memoryKills,
      memoryRefusals: host.memoryRefusals + own.memoryRefusals,
      taskRefusals: host.taskRefusals + own.taskRefusals,
    };
  }

  async function deathReason(handle: RuntimeHandle, seen = 0): Promise<"oom" | "crashed"> {
    const { runtimeID, directory } = handle;
    if ((await limitHits(handle)).memoryKills > seen) return "oom";
    const says = await engine.panicOf?.(directory);
    if (says !== undefined) host.log.error({ runtimeID, says }, "the kernel inside a sandbox gave up");
    return "crashed";
  }

  async function usage(handle: RuntimeHandle): Promise<Usage> {
    const [use, diskBytes] = await Promise.all([engine.usage?.(handle) ?? cgroups.usage(handle.runtimeID), engine.diskBytes(handle)]);
    return { ...use, diskBytes };
  }

  return {
    name: engine.name,
    precreation: engine.precreation && { kindOf: engine.precreation.kindOf, make: makePrecreated },
    start,
    destroy,
    isAlive,
    limitHits,
    deathReason,
    usage,
    checkpoints: engine.checkpoints,
    async freeze(handle) {
      mustLive(handle);
      await engine.freeze(handle);
    },
    async thaw(handle) {
      mustLive(handle);
      await engine.thaw(handle);
    },
    checkpoint,
    exportLayer: (handle, into) => writeInto(handle, into, () => engine.exportLayer(handle, into)),
    list,
    sweepPrograms: async (directories) => engine.sweepPrograms?.(directories),
    program: async () => engine.program?.(),
    probe: async () => engine.report(await prove(host, { name: engine.name, start, destroy, usage, isAlive })),
    close,
    [Symbol.asyncDispose]: () => close(),
  };
}

async function mustExist(path: string, what: string): Promise<void> {
  await access(path).catch(() => fail("SANDBOX_START_FAILED", `${what} is not at ${path}`));
}

/** Reads the pid that a runtime wrote to a file, possibly a moment after it answered. */
export async function pidFrom(read: () => Promise<string>, boundMs = 2000): Promise<number> {
  let pid = Number.NaN;
  await eventually(async () => {
    pid = Number.parseInt(await read().catch(() => ""), 10);
    return pid > 0;
  }, boundMs);
  if (!(pid > 0)) fail("SANDBOX_START_FAILED", "the runtime did not report its process id");
  return pid;
}
