// What sandboxes start from: a template of set-up's, one that was built here, a snapshot, or the source of a fork.
import type { Limits, RootImage, RuntimeName } from "../runtime/runtime.ts";
import type { Startup } from "./build-record.ts";

export type Template = {
  readonly name: string;
  readonly templateID: string;
  readonly cpuCount: number;
  readonly memoryMB: number;
  readonly diskSizeMB: number;
  readonly user: string;
  readonly workdir: string;
  readonly env: Readonly<Record<string, string>>;
  readonly createdAt: string;
  /** Another for each making of it: two builds of one template are two kinds of sandboxes. */
  readonly recipe: string;
  readonly source: string;
  readonly binds: readonly string[];
  readonly folder: string;
  /** The file API reaches files with its user's rights alone. */
  readonly strictFiles?: boolean | undefined;
  readonly image: RootImage;
  /** Sandboxes go on from this checkpoint instead of starting anew: a built template with a start command, or a snapshot. */
  readonly checkpointID?: string | undefined;
  /** The envd that runs in the checkpoint; below `bin` of the home. */
  readonly envd?: string | undefined;
  readonly envdVersion?: string | undefined;
  /** The driver and the limits that the checkpoint needs. */
  readonly runtime?: RuntimeName | undefined;
  readonly limits?: Limits | undefined;
  /** Run after each start by `runStartup` (startup.ts) where there is no checkpoint: the driver could not keep memory. */
  readonly startup?: Startup | undefined;
  /** The checkpoint was written a moment ago and needs no second look. */
  readonly verified?: boolean | undefined;
};

export interface TemplateSource {
  /** By id or name. @throws TEMPLATE_NOT_FOUND. */
  find(asked: string): Template;
  list(): Template[];
  /** A sandbox was started from it. */
  spawned(templateID: string): void;
  /** Whether a template bears this name or id. */
  bears(name: string): boolean;
  /** Checkpoints, with their driver, and envd programs (below `bin` of the home) that templates need: a sweep leaves them. */
  checkpointed(): Iterable<{ readonly templateID: string; readonly checkpointID: string; readonly runtime: RuntimeName }>;
  envds(): Iterable<string>;
}
