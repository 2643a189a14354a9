// Runs one build from its base to its checkpoint: each step in a new sandbox over the layers so far.
import { availableParallelism, totalmem } from "node:os";
import { asFailure, fail } from "@svc/contract/failures.ts";
import type { BuildResult, BuildSpec, Chain, Startup, Surroundings } from "./build-record.ts";
import { type Action, describeStep, type Folder, foldStep, stageOf, stepKey } from "./build-steps.ts";
import { hold, inSandbox, type Job, leftMs, stage as logStage, type Source, say, templateOf } from "./builder.ts";
import { quietly, runStep, shellOf } from "./run-step.ts";
import { resolveSource } from "./source.ts";
import { startUp } from "./startup.ts";

const MIB = 1024 * 1024;
/** A ready command that never succeeds must not take the whole build's time. */
const READY_BOUND_MS = 10 * 60_000;

/** @throws what stopped the build; `job.step` says where. */
export async function runBuild(job: Job, spec: BuildSpec): Promise<BuildResult> {
  enter(job, "base");
  const source = await resolveSource(job, spec);
  const { cpuCount, memoryMB, diskSizeMB } = job.build;
  job.sizes = { cpuCount: cpuCount ?? source.sizes.cpuCount, memoryMB: memoryMB ?? source.sizes.memoryMB, diskSizeMB: diskSizeMB ?? source.sizes.diskSizeMB };
  warnOfHostLimits(job);
  let stage = beginStage(spec, source);
  const finished: Stage[] = [];
  let { chain, surroundings } = stage;
  let folders: readonly Folder[] = [];
  let fresh = spec.force;
  const finish = async () => {
    if (folders.length > 0) chain = await cachedStep(job, chain, { kind: "folders", folders }, "WORKDIR", fresh);
    folders = [];
    stage = { ...stage, chain, surroundings };
  };
  for (const [at, step] of spec.steps.entries()) {
    enter(job, String(at + 1));
    const title = `[${at + 1}/${spec.steps.length}] ${describeStep(step)}`;
    if (step.type === "FROM") {
      say(job, title);
      await finish();
      finished.push(stage);
      stage = await nextStage(job, spec, step.args[0] ?? "", finished);
      ({ chain, surroundings } = stage);
      continue;
    }
    const from = step.from == null ? undefined : await chainFrom(job, spec, step.from, finished);
    const folded = foldStep(step, surroundings, folders, from);
    folders = folded.folders;
    surroundings = { ...folded.surroundings, strictFiles: surroundings.strictFiles };
    stage = { ...stage, names: { user: stage.names.user || step.type === "USER", workdir: stage.names.workdir || step.type === "WORKDIR" } };
    // A forced step changes the files for all later steps, so those run again too.
    fresh ||= step.force === true;
    if (folded.action === undefined) say(job, title);
    else chain = await cachedStep(job, chain, folded.action, title, fresh);
  }
  enter(job, "finalize");
  await finish();
  const { names } = stage;
  if (spec.dockerfile && !names.user) surroundings = { ...surroundings, user: stage.source.user };
  if (spec.dockerfile && !names.workdir) surroundings = { ...surroundings, workdir: stage.source.workdir };
  const startup = startupOf(spec, stage.source.startup);
  return finalize(job, chain, surroundings, startup, spec.readyCmd);
}

/** `names` says whether the source or a step has named a user and a workdir; else a Dockerfile's steps run as root in /. */
type Stage = { readonly source: Source; readonly names: Source["names"]; readonly chain: Chain; readonly surroundings: Surroundings };

function beginStage(spec: BuildSpec, source: Source): Stage {
  const { env, user, workdir, strictFiles, names, chain } = source;
  const surroundings = {
    env,
    user: spec.dockerfile && !names.user ? "root" : user,
    workdir: spec.dockerfile && !names.workdir ? "/" : workdir,
    strictFiles: spec.strictFiles ?? strictFiles,
  };
  return { source, names, chain, surroundings };
}

/** Begins with the result of an earlier stage, or with an image. */
async function nextStage(job: Job, spec: BuildSpec, from: string, finished: readonly Stage[]): Promise<Stage> {
  const number = stageOf(from);
  if (number !== undefined) return finished[number] ?? fail("INVALID_REQUEST", `stage ${number} does not come before it`);
  return beginStage(spec, await resolveSource(job, { ...spec, fromTemplate: undefined, fromImage: from }));
}

/** Returns the files of an earlier stage, or of an image. */
async function chainFrom(job: Job, spec: BuildSpec, from: string, finished: readonly Stage[]): Promise<Chain> {
  const number = stageOf(from);
  if (number === undefined) return (await resolveSource(job, { ...spec, fromTemplate: undefined, fromImage: from })).chain;
  return (finished[number] ?? fail("INVALID_REQUEST", `stage ${number} does not come before it`)).chain;
}

/** Warns if the template has more CPUs or memory than this host, whose sandboxes get no more than the host has. */
function warnOfHostLimits(job: Job): void {
  const { cpuCount, memoryMB } = job.sizes;
  const cpus = availableParallelism();
  const hostMB = Math.floor(totalmem() / MIB);
  if (cpuCount > cpus) say(job, `the template has ${cpuCount} CPUs, this host ${cpus}: its sandboxes get ${cpus} here`, "warn");
  if (memoryMB > hostMB) say(job, `the template has ${memoryMB} MB of memory, this host ${hostMB}: its sandboxes reach the host's limit first`, "warn");
}

function enter(job: Job, step: string): void {
  job.signal.throwIfAborted();
  job.step = step;
  logStage(job, `build ${step}`);
  job.builder.builds.update(job.build.buildID, { step });
}

/** A template inherits the start command of its source unless it has its own. */
function startupOf({ startCmd, readyCmd }: BuildSpec, inherited: Startup | undefined): Startup | undefined {
  if (startCmd !== undefined) return { startCmd, readyCmd };
  return inherited === undefined ? undefined : { ...inherited, ...(readyCmd === undefined ? {} : { readyCmd }) };
}

async function cachedStep(job: Job, chain: Chain, action: Action, title: string, fresh: boolean): Promise<Chain> {
  const { cache, layers } = job.builder;
  const key = stepKey(chain, action);
  const known = fresh ? undefined : cache.find(key);
  if (known !== undefined) {
    const { layerID } = known;
    if (layerID === null || (layers.info(layerID) !== undefined && (await intact(job, layerID)))) {
      cache.touch(key);
      say(job, `${title} (cached)`);
      if (layerID === null) return chain;
      hold(job, layerID);
      return { ...chain, layers: [...chain.layers, layerID] };
    }
  }
  job.builder.images.mustTakeLayer(chain);
  say(job, title);
  const done = await runStep(job, chain, action, title);
  cache.keep(key, done.layerID);
  return done.chain;
}

/** A damaged layer of the cache is built again. */
async function intact(job: Job, layerID: string): Promise<boolean> {
  try {
    await job.builder.layers.verify(layerID);
    return true;
  } catch (error) {
    say(job, `${asFailure(error).message}; the step runs anew`, "warn");
    return false;
  }
}

async function finalize(job: Job, chain: Chain, surroundings: Surroundings, startup: Startup | undefined, readyCmd: string | undefined): Promise<BuildResult> {
  const { builder, sizes } = job;
  const { env, user, workdir } = surroundings;
  return inSandbox(job, templateOf(job, chain), async (guest, { handle, limits, envd, envdVersion, initKey }) => {
    const runtime = builder.sandboxes.runtimeOf(handle);
    const shell = await shellOf(job, guest);
    // Every sandbox of the template will run commands like this one, so a failure now is better than one at each create.
    await guest.run({ cmd: shell, args: ["-c", "true"], user, env, cwd: workdir, timeoutMs: leftMs(job), signal: job.signal });
    const plain = { ...surroundings, ...sizes, chain, startup, checkpointID: undefined, envd: undefined, envdVersion };
    if (startup === undefined && readyCmd === undefined) return plain;
    if (startup !== undefined) say(job, `start command: ${startup.startCmd}`);
    await startUp(guest, startup ?? { readyCmd }, surroundings, {
      shell,
      signal: job.signal,
      boundMs: Math.min(READY_BOUND_MS, leftMs(job)),
      onLine: (kind, message) => say(job, message, kind === "stdout" ? "info" : "warn"),
    });
    say(job, "the template is up");
    if (startup === undefined) return plain;
    if (!runtime.checkpoints.has("memory")) {
      say(job, `the ${runtime.name} driver keeps no memory: each sandbox of this template runs the start command itself`, "warn");
      return plain;
    }
    await quietly(job, guest, "/bin/sh", ["-c", "sync"]).catch(() => undefined);
    logStage(job, "build checkpoint");
    const checkpointID = builder.checkpoints.newID();
    await builder.checkpoints.take(checkpointID, "memory", runtime.name, (into) => runtime.checkpoint(handle, into), {
      templateID: job.build.templateID,
      envd,
      envdVersion,
      initKey,
      rootfs: chain.base?.rootfs,
    });
    // Memory can be resumed only with the limits and by the driver with which it was taken.
    return { ...plain, checkpointID, envd, limits, runtime: runtime.name };
  });
}
