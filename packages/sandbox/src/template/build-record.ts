// A build as it is kept: what was asked, how far it is, what came of it.
import type { BuildStep } from "@svc/contract/template-build.ts";
import type { Limits, RootImage, RuntimeName } from "../runtime/runtime.ts";

/** A root file system as a stack: a directory that others made (set-up's templates), and layers over it, the lowest first. */
export type Chain = {
  readonly base: RootImage | undefined;
  readonly layers: readonly string[];
};

/** What a build is told to do; a registry's credentials are no part of it and are never written. */
export type BuildSpec = {
  readonly fromImage: string | undefined;
  readonly fromTemplate: string | undefined;
  readonly needsCredentials: boolean;
  readonly steps: readonly BuildStep[];
  readonly startCmd: string | undefined;
  readonly readyCmd: string | undefined;
  readonly force: boolean;
  /** Steps begin as in a Dockerfile: as root in /, where the source names neither. */
  readonly dockerfile: boolean;
  /** Absent: as the source has it. */
  readonly strictFiles?: boolean | undefined;
};

/** A command that runs when a template starts, and the one whose exit 0 says that it is up. */
export type Startup = { readonly startCmd: string; readonly readyCmd: string | undefined };

/** What every process of a template gets. */
export type Surroundings = {
  readonly env: Readonly<Record<string, string>>;
  readonly user: string;
  readonly workdir: string;
  /** The file API reaches files with its user's rights alone. */
  readonly strictFiles?: boolean | undefined;
};

export type BuildResult = Surroundings & {
  readonly chain: Chain;
  readonly cpuCount: number;
  readonly memoryMB: number;
  readonly diskSizeMB: number;
  readonly startup: Startup | undefined;
  /** Taken when the start command was up; sandboxes go on from it. Absent where the driver cannot: then each start runs it. */
  readonly checkpointID: string | undefined;
  readonly envd: string | undefined;
  readonly envdVersion: string;
  /** The driver and the limits that the checkpoint needs. */
  readonly runtime?: RuntimeName | undefined;
  readonly limits?: Limits | undefined;
};

/** Of a build that names none and is not over. */
export const defaultSizes = { cpuCount: 2, memoryMB: 1024, diskSizeMB: 4096 };

export type BuildReason = { readonly message: string; readonly step: string | undefined };

export type BuildStatus = "waiting" | "building" | "ready" | "error";

export type Build = {
  readonly buildID: string;
  readonly templateID: string;
  readonly status: BuildStatus;
  readonly tags: readonly string[];
  readonly cpuCount: number | undefined;
  readonly memoryMB: number | undefined;
  readonly diskSizeMB: number | undefined;
  /** Absent until the client has started it. */
  readonly spec: BuildSpec | undefined;
  /** Of a build under way: "base", "finalize" or a step's number; says after a kill where it was. */
  readonly step: string | undefined;
  readonly reason: BuildReason | undefined;
  readonly result: BuildResult | undefined;
  readonly createdAtMs: number;
  /** Absent until the client has started it. */
  readonly startedAtMs?: number | undefined;
  readonly updatedAtMs: number;
  readonly finishedAtMs: number | undefined;
};

export type BuiltTemplate = {
  readonly templateID: string;
  readonly name: string;
  readonly public: boolean;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
};

export type Tag = { readonly tag: string; readonly buildID: string; readonly createdAtMs: number };
