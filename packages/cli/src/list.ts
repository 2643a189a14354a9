// `svc list`: the sandboxes of the deployment.
import type { ListedSandbox } from "@svc/contract/sandbox.ts";
import { type AccessOptions, withClient } from "./access.ts";
import { duration, type OutputFormat, outputFormat, printJSON, printTable } from "./table.ts";

type Options = AccessOptions & { metadata?: Record<string, string>; template?: string; quiet?: true; output?: OutputFormat };

export function list({ metadata, template, quiet, output, ...access }: Options): Promise<number> {
  return withClient(access, async (client) => {
    const filter = { ...(metadata === undefined ? {} : { metadata }), ...(template === undefined ? {} : { template }) };
    const sandboxes: ListedSandbox[] = [];
    for await (const sandbox of client.list(filter)) sandboxes.push(sandbox);
    if (quiet === true) {
      for (const { sandboxID } of sandboxes) process.stdout.write(`${sandboxID}\n`);
    } else if (outputFormat(output) === "json") printJSON(sandboxes);
    else {
      const now = Date.now();
      printTable(
        ["SANDBOX ID", "TEMPLATE", "STATE", "CPU", "MEM", "DISK", "STARTED", "TIME LEFT"],
        sandboxes.map((sandbox) => [
          sandbox.sandboxID,
          sandbox.alias ?? sandbox.templateID,
          sandbox.state,
          String(sandbox.cpuCount),
          `${sandbox.memoryMB} MiB`,
          `${sandbox.diskSizeMB} MiB`,
          localTime(new Date(sandbox.startedAt)),
          sandbox.state === "running" ? duration(Date.parse(sandbox.endAt) - now) : "",
        ]),
      );
    }
    return 0;
  });
}

/** 2026-01-31 09:05:00 in this machine's time zone. */
export function localTime(date: Date): string {
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19).replace("T", " ");
}
