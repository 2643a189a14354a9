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

/** Names that stand for another template, with the reason: { base: { template, reason } }. */
const aliasFile = z.record(z.string(), z.union([z.string(), z.object({ template: z.string(), reason: z.string() })]));

/** Reads the directory anew when it changed; a template made while the node runs is found. */
export function openSetupTemplates(directory: string): TemplateSource {
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
