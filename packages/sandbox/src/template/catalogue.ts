// Which templates this machine has: directories with template.json and rootfs/, made by set-up.
import { readdirSync, readFileSync, realpathSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { z } from "zod";
import type { Limits, RootImage, RuntimeName } from "../runtime/runtime.ts";
import type { Startup } from "./build-record.ts";

const description = z.object({
  name: z.string(),
  templateID: z.string(),
  cpuCount: z.number().int().positive(),
  memoryMB: z.number().int().positive(),
  diskSizeMB: z.number().int().positive(),
  user: z.string(),
  workdir: z.string(),
  env: z.record(z.string(), z.string()),
  createdAt: z.string(),
  recipe: z.string(),
  source: z.string(),
  binds: z.array(z.string()).default([]),
});

export type Template = z.output<typeof description> & {
  readonly folder: string;
  /** The file API reaches files with its user's rights alone. */
  readonly strictFiles?: boolean | undefined;
  readonly image: RootImage;
  /** Sandboxes go on from this capture instead of starting anew: a built template with a start command, or a snapshot. */
  readonly captureID?: string | undefined;
  /** The envd that runs in the capture; below `bin` of the home. */
  readonly envd?: string | undefined;
  readonly envdVersion?: string | undefined;
  /** The driver and the limits that the capture needs. */
  readonly runtime?: RuntimeName | undefined;
  readonly limits?: Limits | undefined;
  /** Run after each start by `runStartup` (startup.ts) where there is no capture: the driver could not keep memory. */
  readonly startup?: Startup | undefined;
  /** The capture was written a moment ago and needs no second look. */
  readonly verified?: boolean | undefined;
};

export interface Catalogue {
  /** By id or name. @throws TEMPLATE_NOT_FOUND. */
  find(asked: string): Template;
  list(): Template[];
  /** A sandbox was started from it. */
  spawned(templateID: string): void;
  /** Whether a template bears this name or id. */
  bears(name: string): boolean;
  /** Captures, with their driver, and envd programs (below `bin` of the home) that templates need: a sweep leaves them. */
  captured(): Iterable<{ readonly templateID: string; readonly captureID: string; readonly runtime: RuntimeName }>;
  envds(): Iterable<string>;
}

/** Names that stand for another template, with the reason: { base: { template, reason } }. */
const aliasFile = z.record(z.string(), z.union([z.string(), z.object({ template: z.string(), reason: z.string() })]));

/** Reads the directory anew when it changed; a template made while the node runs is found. */
export function openCatalogue(directory: string, snapshot: (asked: string) => Template | undefined = () => undefined): Catalogue {
  let readAt = -1;
  let byName = new Map<string, Template>();
  let templates: Template[] = [];

  function refresh(): void {
    const changedAt = modifiedAt(directory) + modifiedAt(join(directory, "aliases.json"));
    if (changedAt === readAt) return;
    templates = readTemplates(directory);
    byName = new Map();
    // Oldest first, so that of two recipes of one name the newest stands.
    for (const template of templates) byName.set(template.name, template);
    for (const template of templates) byName.set(template.templateID, template);
    for (const [alias, value] of Object.entries(readAliases(directory))) {
      const folder = typeof value === "string" ? value : value.template;
      const target = templates.find((template) => template.folder === folder) ?? byName.get(folder);
      if (target !== undefined && !byName.has(alias)) byName.set(alias, target);
    }
    readAt = changedAt;
  }

  return {
    find(asked) {
      refresh();
      const template = byName.get(asked) ?? snapshot(asked);
      if (template !== undefined) return template;
      return fail("TEMPLATE_NOT_FOUND", `template '${asked}' not found${templates.length === 0 ? ": this node has none; run ./svc setup" : ""}`);
    },
    list() {
      refresh();
      return [...new Set(byName.values())];
    },
    spawned: () => {},
    bears(name) {
      refresh();
      return byName.has(name);
    },
    captured: () => [],
    envds: () => [],
  };
}

function readTemplates(directory: string): Template[] {
  let names: string[];
  try {
    names = readdirSync(directory);
  } catch {
    return [];
  }
  const found = new Map<string, Template>();
  for (const name of names) {
    try {
      // A link of set-up's names the folder in force; a sandbox must hold on to the folder itself.
      const place = realpathSync(join(directory, name));
      if (found.has(place)) continue;
      const template = description.parse(JSON.parse(readFileSync(join(place, "template.json"), "utf8")));
      if (!statSync(join(place, "rootfs")).isDirectory()) continue;
      found.set(place, { ...template, folder: basename(place), image: { rootfs: join(place, "rootfs"), binds: template.binds } });
    } catch {
      // Half-made (a set-up under way writes template.json last), or no template at all.
    }
  }
  return [...found.values()].sort((a, b) => a.createdAt.localeCompare(b.createdAt));
}

function readAliases(directory: string): z.output<typeof aliasFile> {
  try {
    return aliasFile.parse(JSON.parse(readFileSync(join(directory, "aliases.json"), "utf8")));
  } catch {
    return {};
  }
}

function modifiedAt(path: string): number {
  try {
    return statSync(path).mtimeMs;
  } catch {
    return 0;
  }
}
