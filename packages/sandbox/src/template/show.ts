// Templates and builds as the public API shows them.
import { createHash } from "node:crypto";
import type { ListedTemplate } from "@svc/contract/template.ts";
import type { Build, BuiltTemplate } from "./build-record.ts";
import type { Template } from "./template.ts";

export type Spawns = { readonly count: number; readonly lastAtMs: number | undefined };

const iso = (ms: number) => new Date(ms).toISOString();

/** `shown`: the newest ready build, else the newest. */
export function listedBuilt(template: BuiltTemplate, all: readonly Build[], spawns: Spawns, envdVersion: string): ListedTemplate {
  const newest = all[0];
  const build = all.find(({ status }) => status === "ready") ?? newest;
  const { result } = build ?? {};
  return {
    templateID: template.templateID,
    buildID: build?.buildID ?? "",
    cpuCount: result?.cpuCount ?? build?.cpuCount ?? 0,
    memoryMB: result?.memoryMB ?? build?.memoryMB ?? 0,
    diskSizeMB: result?.diskSizeMB ?? build?.diskSizeMB ?? 0,
    public: template.public,
    aliases: [template.name],
    names: [template.name],
    createdAt: iso(template.createdAtMs),
    updatedAt: iso(template.updatedAtMs),
    createdBy: null,
    lastSpawnedAt: spawns.lastAtMs === undefined ? null : iso(spawns.lastAtMs),
    spawnCount: spawns.count,
    buildCount: all.length,
    envdVersion: result?.envdVersion ?? envdVersion,
    buildStatus: newest?.status ?? "waiting",
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
    status: build.status,
    createdAt: iso(build.createdAtMs),
    updatedAt: iso(build.updatedAtMs),
    finishedAt: build.finishedAtMs === undefined ? null : iso(build.finishedAtMs),
    cpuCount: result?.cpuCount ?? build.cpuCount ?? 0,
    memoryMB: result?.memoryMB ?? build.memoryMB ?? 0,
    diskSizeMB: result?.diskSizeMB ?? build.diskSizeMB ?? null,
    envdVersion: result?.envdVersion ?? null,
  };
}

/** Set-up's recipes are hashes; the clients' types want a UUID. */
export function uuidOf(recipe: string): string {
  const hex = createHash("sha256").update(recipe).digest("hex");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-5${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}
