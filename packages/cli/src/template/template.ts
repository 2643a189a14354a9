// `svc template list|tag|publish|delete`: lists templates, changes their names and visibility, and deletes them.

import { type OutputFormat, outputFormat, printJSON, printTable } from "@svc/contract/table.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { EXIT_FAILURE, UsageError } from "../output/complain.ts";
import { collect, forEach } from "../output/for-each.ts";
import { localTime } from "../sandbox/list.ts";

export function listTemplates({ quiet, output, ...access }: AccessOptions & { quiet?: true; output?: OutputFormat }): Promise<number> {
  return withClient(access, async (client) => {
    const templates = await collect(client.templates.list());
    if (quiet === true) for (const { templateID } of templates) process.stdout.write(`${templateID}\n`);
    else if (outputFormat(output) === "json") printJSON(templates);
    else {
      printTable(
        ["TEMPLATE ID", "NAMES", "STATUS", "CPU", "MEM", "DISK", "SPAWNED", "CREATED"],
        templates.map((template) => [
          template.templateID,
          template.names.join(", "),
          template.buildStatus,
          String(template.cpuCount),
          `${template.memoryMB} MiB`,
          `${template.diskSizeMB} MiB`,
          String(template.spawnCount),
          localTime(new Date(template.createdAt)),
        ]),
      );
    }
    return 0;
  });
}

type TagOptions = AccessOptions & { remove?: string[]; output?: OutputFormat };

export function tag(target: string, tags: readonly string[], { remove, output, ...access }: TagOptions): Promise<number> {
  const clash = tags.find((each) => remove?.includes(each));
  if (clash !== undefined) throw new UsageError(`tag ${clash} cannot be added and removed in one call`);
  const name = target.split(":")[0] ?? target;
  return withClient(access, async (client) => {
    if (tags.length > 0) await client.templates.tag(target, tags);
    if (remove !== undefined) await client.templates.untag(name, remove);
    const listed = await client.templates.tags(name);
    if (outputFormat(output) === "json") printJSON(listed);
    else {
      printTable(
        ["TAG", "BUILD ID", "CREATED"],
        listed.map((each) => [each.tag, each.buildID, localTime(new Date(each.createdAt))]),
      );
    }
    return 0;
  });
}

export function publish(reference: string, { private: isPrivate, ...access }: AccessOptions & { private?: true }): Promise<number> {
  return withClient(access, async (client) => {
    const names = await client.templates.publish(reference, isPrivate !== true);
    process.stdout.write(`${names.length === 0 ? reference : names.join("\n")}\n`);
    return 0;
  });
}

export function deleteTemplates(references: readonly string[], access: AccessOptions): Promise<number> {
  return withClient(access, async (client) => {
    const done = await forEach(references, async (reference) => {
      await client.templates.delete(reference);
      process.stdout.write(`${reference}\n`);
    });
    return done === references.length ? 0 : EXIT_FAILURE;
  });
}
