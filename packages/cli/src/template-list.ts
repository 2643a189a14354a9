// `svc template list`: what sandboxes can start from.
import { type AccessOptions, withClient } from "./access.ts";
import { collect } from "./for-each.ts";
import { localTime } from "./list.ts";
import { type OutputFormat, outputFormat, printJSON, printTable } from "./table.ts";

export function listTemplates({ output, ...access }: AccessOptions & { output?: OutputFormat }): Promise<number> {
  return withClient(access, async (client) => {
    const templates = await collect(client.templates.list());
    if (outputFormat(output) === "json") printJSON(templates);
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
