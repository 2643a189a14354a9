// A template as the start of sandboxes: a setup template, one that was built, a snapshot, or the source of a fork.
import type { Limits, RootImage, RuntimeName, VolumeReference } from "../runtime/runtime.ts";
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
  /** Differs for each build: sandboxes of two builds of one template are not interchangeable. */
  readonly recipe: string;
  readonly source: string;
  readonly binds: readonly string[];
  readonly folder: string;
  /** The file API accesses files with its user's rights only. */
  readonly strictFiles?: boolean | undefined;
  readonly image: RootImage;
  /** Sandboxes resume from this checkpoint instead of starting from files: a built template with a start command, or a snapshot. */
  readonly checkpointID?: string | undefined;
  /** The checkpoint holds files alone. */
  readonly isFilesOnly?: boolean | undefined;
  /** The envd that runs in the checkpoint, a file below `bin` of the home. */
  readonly envd?: string | undefined;
  readonly envdVersion?: string | undefined;
  /** The driver and limits with which the checkpoint was taken. */
  readonly runtime?: RuntimeName | undefined;
  readonly limits?: Limits | undefined;
  /** `runStartup` (startup.ts) runs it after each start if there is no checkpoint, because the driver cannot keep memory. */
  readonly startup?: Startup | undefined;
  /** The volumes that its sandboxes mount: those of a snapshot or of a fork's source, or of the create. */
  readonly volumes?: readonly VolumeReference[] | undefined;
  /** For a snapshot: the tenant that it belongs to; absent: the deployment itself. */
  readonly tenant?: string | undefined;
  /** The checkpoint was just written, so it need not be verified. */
  readonly verified?: boolean | undefined;
};

export interface TemplateSource {
  /** Finds a template by id or name. @throws TEMPLATE_NOT_FOUND. */
  find(asked: string): Template;
  list(): Template[];
  /** Counts a sandbox that was started from the template. */
  spawned(templateID: string): void;
  /** Returns true if a template has this name or id. */
  bears(name: string): boolean;
  /** Returns the checkpoints that templates need, with their driver; a sweep keeps them, and also the envd programs of `envds`. */
  checkpointed(): Iterable<{ readonly templateID: string; readonly checkpointID: string; readonly runtime: RuntimeName }>;
  envds(): Iterable<string>;
}
