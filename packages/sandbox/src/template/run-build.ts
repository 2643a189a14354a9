// Runs one build from its base to its checkpoint: each step in a new sandbox over the layers so far.
import { availableParallelism, totalmem } from "node:os";
import { asFailure } from "@svc/contract/failures.ts";
import type { BuildResult, BuildSpec, Chain, Startup, Surroundings } from "./build-record.ts";
import { type Action, describeStep, type Folder, foldStep, stepKey } from "./build-steps.ts";
import { hold, inSandbox, type Job, leftMs, say, stage, templateOf } from "./builder.ts";
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
  let { chain } = source;
  const asRoot = spec.dockerfile && !source.names.user;
  const inRoot = spec.dockerfile && !source.names.workdir;
  let surroundings: Surroundings = {
    env: source.env,
    user: asRoot ? "root" : source.user,
    workdir: inRoot ? "/" : source.workdir,
    strictFiles: spec.strictFiles ?? source.strictFiles,
  };
  let folders: readonly Folder[] = [];
  let fresh = spec.force;
  for (const [at, step] of spec.steps.entries()) {
    enter(job, String(at + 1));
    const title = `[${at + 1}/${spec.steps.length}] ${describeStep(step)}`;
    const folded = foldStep(step, surroundings, folders);
    ({ surroundings, folders } = folded);
    // A forced step changes the files for all later steps, so those run again too.
    fresh ||= step.force === true;
    if (folded.action === undefined) say(job, title);
    else chain = await cachedStep(job, chain, folded.action, title, fresh);
  }
  enter(job, "finalize");
  const named = (type: string) => spec.steps.some((step) => step.type === type);
  if (asRoot && !named("USER")) surroundings = { ...surroundings, user: source.user };
  if (inRoot && !named("WORKDIR")) surroundings = { ...surroundings, workdir: source.workdir };
  if (folders.length > 0) chain = await cachedStep(job, chain, { kind: "folders", folders }, "WORKDIR", fresh);
  const startup = startupOf(spec, source.startup);
  return finalize(job, chain, surroundings, startup, spec.readyCmd);
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
  stage(job, `build ${step}`);
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
    stage(job, "build checkpoint");
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
