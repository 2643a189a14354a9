// The tools that builds share (sandboxes of their own, layers, uploads, the build cache), and the state of one running build.
import { fail } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import { type Guest, openGuest } from "../agent/guest.ts";
import type { Checkpoints } from "../records/checkpoints.ts";
import type { Limits, Runtime, RuntimeHandle } from "../runtime/runtime.ts";
import type { BuildCache } from "./build-cache.ts";
import type { BuildLog, Level } from "./build-log.ts";
import type { Build, Chain, Startup, Surroundings } from "./build-record.ts";
import type { Builds } from "./builds.ts";
import type { Copies, Copy } from "./copies.ts";
import { type Images, MAX_LAYERS } from "./images.ts";
import type { LayerInfo, Layers } from "./layers.ts";
import type { TemplateSettings } from "./settings.ts";
import type { Template } from "./template.ts";
import type { Uploads } from "./uploads.ts";

/** A started sandbox without owner or pool; the node's recovery ends it if the build does not. */
export type BuildSandbox = {
  readonly sandboxID: string;
  readonly handle: RuntimeHandle;
  readonly limits: Limits;
  /** The envd that runs in it, a file below `bin` of the home. */
  readonly envd: string;
  readonly envdVersion: string;
  /** The public key that its envd accepts. */
  readonly initKey: string | undefined;
};

export type BuildSandboxes = {
  /** Starts a warm sandbox with the usual egress rules. */
  start(template: Template): Promise<BuildSandbox>;
  end(sandboxID: string): Promise<void>;
  runtimeOf(handle: RuntimeHandle): Runtime;
};

/** `tags` are those that will move to the build. */
export type KeepBuild = (build: Copy, tags: readonly string[], publish: () => void) => Promise<void>;

export type Builder = {
  readonly home: string;
  readonly settings: TemplateSettings;
  readonly spawner: Spawner;
  readonly log: Log;
  readonly nowMs: () => number;
  readonly cache: BuildCache;
  readonly builds: Builds;
  readonly copies: Copies;
  readonly buildLog: BuildLog;
  readonly layers: Layers;
  readonly images: Images;
  readonly uploads: Uploads;
  readonly checkpoints: Checkpoints;
  readonly sandboxes: BuildSandboxes;
  /** Stores the build as settings require, then runs `publish`, which makes it ready. @throws what `publish` throws, or why it cannot be stored. */
  readonly keep: KeepBuild;
  /** Finds a template or snapshot by id or name. @throws TEMPLATE_NOT_FOUND. */
  readonly find: (asked: string) => Template;
  /** Layers that running builds use before any record references them. */
  readonly layersInHand: Map<string, number>;
};

export type Sizes = { readonly cpuCount: number; readonly memoryMB: number; readonly diskSizeMB: number };

/** The start state of a build. */
export type Source = Surroundings & {
  readonly chain: Chain;
  readonly sizes: Sizes;
  readonly startup: Startup | undefined;
  /** True if the source itself names a user or workdir, rather than our defaults. */
  readonly names: { readonly user: boolean; readonly workdir: boolean };
};

export type RegistryCredentials =
  | { readonly type: "registry"; readonly username: string; readonly password: string }
  | { readonly type: "aws"; readonly awsAccessKeyId: string; readonly awsSecretAccessKey: string; readonly awsRegion: string }
  | { readonly type: "gcp"; readonly serviceAccountJson: string };

/** Values that are in memory alone while their build waits and runs. */
export type Confidential = { readonly registry: RegistryCredentials | undefined; readonly secrets: Readonly<Record<string, string>> };

/** The state of one running build. */
export type Job = {
  readonly builder: Builder;
  readonly build: Build;
  readonly signal: AbortSignal;
  readonly deadlineMs: number;
  readonly credentials: RegistryCredentials | undefined;
  /** Build secrets by id. */
  readonly secrets: Readonly<Record<string, string>>;
  sizes: Sizes;
  /** The current step: "base", a number or "finalize". */
  step: string;
};

export function say(job: Job, message: string, level: Level = "info"): void {
  job.builder.buildLog.write(job.build.buildID, job.step, [{ level, message }]);
}

/** Logs the stage at level debug, also for tests that kill a node at that moment. */
export function stage({ builder, build }: Job, name: string): void {
  builder.log.debug({ stage: name, buildID: build.buildID }, "stage begins");
}

export function leftMs(job: Job): number {
  return Math.max(1, job.deadlineMs - performance.now());
}

/** The template for the sandboxes of a build; its id is known to no pool and no client. */
export function templateOf({ build, sizes, builder }: Job, chain: Chain): Template {
  return {
    name: "",
    templateID: `build-${build.buildID}`,
    ...sizes,
    user: "root",
    workdir: "/",
    env: {},
    createdAt: new Date(build.createdAtMs).toISOString(),
    recipe: build.buildID,
    source: "build",
    binds: [...(chain.base?.binds ?? [])],
    folder: build.buildID,
    image: builder.images.of(chain),
  };
}

/** Runs `work` in a new sandbox and ends that sandbox afterwards. */
export async function inSandbox<T>(job: Job, template: Template, work: (guest: Guest, sandbox: BuildSandbox) => Promise<T>): Promise<T> {
  const { sandboxes } = job.builder;
  job.signal.throwIfAborted();
  const sandbox = await sandboxes.start(template);
  try {
    job.signal.throwIfAborted();
    return await work(openGuest(sandbox.handle, sandboxes.runtimeOf(sandbox.handle)), sandbox);
  } finally {
    await sandboxes.end(sandbox.sandboxID);
  }
}

/** Returns the chain with the changes of `work` as a new top layer, or the same chain if it changed nothing. */
export async function layered(
  job: Job,
  chain: Chain,
  note: string,
  work: (guest: Guest) => Promise<void>,
): Promise<{ chain: Chain; layer: LayerInfo | undefined }> {
  if (chain.layers.length >= MAX_LAYERS) fail("INVALID_REQUEST", `the template has ${MAX_LAYERS} layers, the maximum: combine RUN steps with &&`);
  const { builder } = job;
  const layer = await inSandbox(job, templateOf(job, chain), async (guest, { handle }) => {
    await work(guest);
    return exported(job, handle, note, builder.images.of(chain).rootfs);
  });
  return { chain: layer === undefined ? chain : { ...chain, layers: [...chain.layers, layer.layerID] }, layer };
}

export async function exported(job: Job, handle: RuntimeHandle, note: string, below: string): Promise<LayerInfo | undefined> {
  const { builder } = job;
  stage(job, "build layer");
  const layer = await builder.layers.add(note, (diff) => builder.sandboxes.runtimeOf(handle).exportLayer(handle, diff), below);
  if (layer !== undefined) hold(job, layer.layerID);
  return layer;
}

/** Protects a layer from collection while the build runs. */
export function hold({ builder }: Job, layerID: string): void {
  builder.layersInHand.set(layerID, builder.nowMs());
}
