// What builds work with: sandboxes of their own, layers, uploads, the build cache; and one build's view of them.
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

/** A started sandbox that nobody owns and no pool knows; the node's recovery ends it. */
export type BuildSandbox = {
  readonly sandboxID: string;
  readonly handle: RuntimeHandle;
  readonly limits: Limits;
  /** The envd that runs in it, below `bin` of the home. */
  readonly envd: string;
  readonly envdVersion: string;
  /** The key that it obeys. */
  readonly initKey: string | undefined;
};

export type BuildSandboxes = {
  /** Warm, with the egress rules of every sandbox. */
  start(template: Template): Promise<BuildSandbox>;
  end(sandboxID: string): Promise<void>;
  runtimeOf(handle: RuntimeHandle): Runtime;
};

/** `tags`: that it will bear. */
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
  /** Runs `publish` once the build is kept wherever settings want it before it is ready. @throws what it throws, and where it cannot be kept there. */
  readonly keep: KeepBuild;
  /** By id or name, snapshots too. @throws TEMPLATE_NOT_FOUND. */
  readonly find: (asked: string) => Template;
  /** Layers that builds under way stand on, before any record names them. */
  readonly layersInHand: Map<string, number>;
};

export type Sizes = { readonly cpuCount: number; readonly memoryMB: number; readonly diskSizeMB: number };

/** What a build begins with. */
export type Source = Surroundings & {
  readonly chain: Chain;
  readonly sizes: Sizes;
  readonly startup: Startup | undefined;
  /** Whether user and workdir are its own words, not ours for want of any. */
  readonly names: { readonly user: boolean; readonly workdir: boolean };
};

export type RegistryCredentials =
  | { readonly type: "registry"; readonly username: string; readonly password: string }
  | { readonly type: "aws"; readonly awsAccessKeyId: string; readonly awsSecretAccessKey: string; readonly awsRegion: string }
  | { readonly type: "gcp"; readonly serviceAccountJson: string };

/** One build while it runs. */
export type Job = {
  readonly builder: Builder;
  readonly build: Build;
  readonly signal: AbortSignal;
  readonly deadlineMs: number;
  readonly credentials: RegistryCredentials | undefined;
  sizes: Sizes;
  /** Where it is: "base", a number, "finalize". */
  step: string;
};

export function say(job: Job, message: string, level: Level = "info"): void {
  job.builder.buildLog.write(job.build.buildID, job.step, [{ level, message }]);
}

/** For the log at level debug, and for tests that kill a node at such a moment. */
export function stage({ builder, build }: Job, name: string): void {
  builder.log.debug({ stage: name, buildID: build.buildID }, "stage begins");
}

export function leftMs(job: Job): number {
  return Math.max(1, job.deadlineMs - performance.now());
}

/** What the sandboxes of a build are started from; no pool and no client knows its id. */
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

/** Runs `work` in a sandbox of its own, which ends with it. */
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

/** The chain with what `work` changed on top; the same chain when it changed nothing. */
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

/** Keeps a layer from being collected while the build runs. */
export function hold({ builder }: Job, layerID: string): void {
  builder.layersInHand.set(layerID, builder.nowMs());
}
