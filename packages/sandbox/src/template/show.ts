// Converts templates and builds to the shapes of the public API.
import { createHash } from "node:crypto";
import type { ListedTemplate } from "@svc/contract/template.ts";
import { type Build, type BuildReason, type BuiltTemplate, defaultSizes } from "./build-record.ts";
import type { Template } from "./template.ts";

export type Spawns = { readonly count: number; readonly lastAtMs: number | undefined };

const iso = (ms: number) => new Date(ms).toISOString();

/** A client starts a build after it has uploaded the files. After this time the build is shown as failed, but a late start is still accepted. */
const START_BOUND_MS = 15 * 60_000;

/** Returns why a requested build that its client has not started counts as failed. */
export function neverStarted({ status, spec, createdAtMs }: Build, nowMs = Date.now()): BuildReason | undefined {
  if (status !== "waiting" || spec !== undefined || nowMs - createdAtMs < START_BOUND_MS) return undefined;
  return { message: `its client did not start it within ${START_BOUND_MS / 60_000} minutes: the client ended, or could not send its files`, step: undefined };
}

export function shownStatus(build: Build, nowMs = Date.now()): Build["status"] {
  return neverStarted(build, nowMs) === undefined ? build.status : "error";
}

/** The build that was started last; one that was requested earlier and started later supersedes the other. */
function lastStarted(all: readonly Build[]): Build | undefined {
  const at = ({ startedAtMs, createdAtMs }: Build) => startedAtMs ?? createdAtMs;
  return all.reduce<Build | undefined>((last, build) => (last === undefined || at(build) > at(last) ? build : last), undefined);
}

/** Shows the newest ready build, or else the newest one; the status is that of the build that was started last. */
export function listedBuilt(template: BuiltTemplate, all: readonly Build[], spawns: Spawns, envdVersion: string): ListedTemplate {
  const newest = lastStarted(all);
  const build = all.find(({ status }) => status === "ready") ?? newest;
  const { result } = build ?? {};
  return {
    templateID: template.templateID,
    buildID: build?.buildID ?? "",
    cpuCount: result?.cpuCount ?? build?.cpuCount ?? defaultSizes.cpuCount,
    memoryMB: result?.memoryMB ?? build?.memoryMB ?? defaultSizes.memoryMB,
    diskSizeMB: result?.diskSizeMB ?? build?.diskSizeMB ?? defaultSizes.diskSizeMB,
    public: template.public,
    aliases: [template.name],
    names: [template.name],
    createdAt: iso(template.createdAtMs),
    updatedAt: iso(template.updatedAtMs),
    createdBy: template.creator === undefined ? null : { id: template.creator, email: null },
    lastSpawnedAt: spawns.lastAtMs === undefined ? null : iso(spawns.lastAtMs),
    spawnCount: spawns.count,
    buildCount: all.length,
    envdVersion: result?.envdVersion ?? envdVersion,
    buildStatus: newest === undefined ? "waiting" : shownStatus(newest),
  };
}

export function listedSetUp(template: Template, names: readonly string[], spawns: Spawns, envdVersion: string): ListedTemplate {
  const { templateID, recipe, cpuCount, memoryMB, diskSizeMB, createdAt } = template;
  return {
    templateID,
    buildID: uuidOf(recipe),
    cpuCount,
    memoryMB,
    diskSizeMB,
    public: true,
    aliases: [...names],
    names: [...names],
    createdAt,
    updatedAt: createdAt,
    createdBy: null,
    lastSpawnedAt: spawns.lastAtMs === undefined ? null : iso(spawns.lastAtMs),
    spawnCount: spawns.count,
    buildCount: 1,
    envdVersion,
    buildStatus: "ready",
  };
}

export function shownBuild(build: Build) {
  const { result } = build;
  return {
    buildID: build.buildID,
    status: shownStatus(build),
    createdAt: iso(build.createdAtMs),
    updatedAt: iso(build.updatedAtMs),
    finishedAt: build.finishedAtMs === undefined ? null : iso(build.finishedAtMs),
    cpuCount: result?.cpuCount ?? build.cpuCount ?? defaultSizes.cpuCount,
    memoryMB: result?.memoryMB ?? build.memoryMB ?? defaultSizes.memoryMB,
    diskSizeMB: result?.diskSizeMB ?? build.diskSizeMB ?? null,
    envdVersion: result?.envdVersion ?? null,
  };
}

/** A setup recipe is a hash, while the clients' types expect a UUID. */
export function uuidOf(recipe: string): string {
  const hex = createHash("sha256").update(recipe).digest("hex");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-5${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}
