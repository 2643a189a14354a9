// The record of a build: its request, its progress and its result.
import type { BuildStep } from "@svc/contract/template-build.ts";
import type { Limits, RootImage, RuntimeName } from "../runtime/runtime.ts";

/** A root file system as a stack: a directory that was not built here (a setup template), and layers over it, lowest first. */
export type Chain = {
  readonly base: RootImage | undefined;
  readonly layers: readonly string[];
};

/** The request of a build; registry credentials are not part of it and are never written. */
export type BuildSpec = {
  readonly fromImage: string | undefined;
  readonly fromTemplate: string | undefined;
  readonly needsCredentials: boolean;
  readonly steps: readonly BuildStep[];
  readonly startCmd: string | undefined;
  readonly readyCmd: string | undefined;
  readonly force: boolean;
  /** Without a user and workdir in the source, steps start as in a Dockerfile: as root in /. */
  readonly dockerfile: boolean;
  /** If absent, the source's value applies. */
  readonly strictFiles?: boolean | undefined;
};

/** A command that runs when a template starts, and a command whose exit code 0 means that it is ready. */
export type Startup = { readonly startCmd: string; readonly readyCmd: string | undefined };

/** The environment of every process of a template. */
export type Surroundings = {
  readonly env: Readonly<Record<string, string>>;
  readonly user: string;
  readonly workdir: string;
  /** The file API accesses files with its user's rights only. */
  readonly strictFiles?: boolean | undefined;
};

export type BuildResult = Surroundings & {
  readonly chain: Chain;
  readonly cpuCount: number;
  readonly memoryMB: number;
  readonly diskSizeMB: number;
  readonly startup: Startup | undefined;
  /**
   * The checkpoint taken once the start command was ready, from which sandboxes resume. Absent if the driver cannot keep memory; each start runs the command
   * then.
   */
  readonly checkpointID: string | undefined;
  readonly envd: string | undefined;
  readonly envdVersion: string;
  /** The driver and limits with which the checkpoint was taken. */
  readonly runtime?: RuntimeName | undefined;
  readonly limits?: Limits | undefined;
};

/** Shown for a build that names no sizes and has not ended. */
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
  /** Absent until the client has started the build. */
  readonly spec: BuildSpec | undefined;
  /** The current step of a running build: "base", "finalize" or a number; after a kill it says where the build was. */
  readonly step: string | undefined;
  readonly reason: BuildReason | undefined;
  readonly result: BuildResult | undefined;
  readonly createdAtMs: number;
  /** Absent until the client has started the build. */
  readonly startedAtMs?: number | undefined;
  readonly updatedAtMs: number;
  readonly finishedAtMs: number | undefined;
};

export type BuiltTemplate = {
  readonly templateID: string;
  readonly name: string;
  readonly public: boolean;
  /** The UUID derived from the API key that requested it; absent in records of earlier versions. */
  readonly creator?: string | undefined;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
};

export type Tag = { readonly tag: string; readonly buildID: string; readonly createdAtMs: number };
