// The templates that set-up made on this machine: directories with template.json and rootfs/.
import { readdirSync, readFileSync, realpathSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { z } from "zod";
import type { Template, TemplateSource } from "./template.ts";

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

/** Alias names of other templates, with the reason: { base: { template, reason } }. */
const aliasFile = z.record(z.string(), z.union([z.string(), z.object({ template: z.string(), reason: z.string() })]));

/** Reads the directory again when it has changed, so that a template made while the node runs is found. */
export function openSetupTemplates(directory: string): TemplateSource {
  let readAt = -1;
  let byName = new Map<string, Template>();
  let templates: Template[] = [];

  function refresh(): void {
    const changedAt = modifiedAt(directory) + modifiedAt(join(directory, "aliases.json"));
    if (changedAt === readAt) return;
    templates = readTemplates(directory);
    byName = new Map();
    // Templates are sorted oldest first, so that the newest of several recipes with one name wins.
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
      const template = byName.get(asked);
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
    checkpointed: () => [],
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
      // Set-up's link points to the current folder; a sandbox needs the folder itself, since the link may move.
      const path = realpathSync(join(directory, name));
      if (found.has(path)) continue;
      const template = description.parse(JSON.parse(readFileSync(join(path, "template.json"), "utf8")));
      if (!statSync(join(path, "rootfs")).isDirectory()) continue;
      found.set(path, { ...template, folder: basename(path), image: { rootfs: join(path, "rootfs"), binds: template.binds } });
    } catch {
      // The folder is incomplete (set-up writes template.json last) or is not a template.
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
