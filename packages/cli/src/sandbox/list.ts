// `svc list`: the sandboxes of the deployment, as a table or as a tree of forks.
import type { SvcClient } from "@svc/contract/client.ts";
import type { ListedSandbox } from "@svc/contract/sandbox.ts";
import { duration, type OutputFormat, outputFormat, printJSON, printTable } from "@svc/contract/table.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { collect } from "../output/for-each.ts";
import { treeOf } from "./tree.ts";

type Options = AccessOptions & {
  metadata?: Record<string, string>;
  template?: string;
  state?: "running" | "paused" | "running,paused";
  tree?: true;
  quiet?: true;
  output?: OutputFormat;
};

export function list({ metadata, template, state, tree, quiet, output, ...access }: Options): Promise<number> {
  return withClient(access, async (client) => {
    const filter = {
      ...(metadata === undefined ? {} : { metadata }),
      ...(template === undefined ? {} : { template }),
      ...(state === undefined ? {} : { state }),
    };
    const sandboxes = await collect(client.list(filter));
    if (quiet === true) {
      for (const { sandboxID } of sandboxes) process.stdout.write(`${sandboxID}\n`);
    } else if (outputFormat(output) === "json") printJSON(sandboxes);
    else if (tree === true) await printTree(client, sandboxes, Object.keys(filter).length > 0);
    else
      printTable(
        ["SANDBOX ID", ...COLUMNS],
        sandboxes.map((sandbox) => [sandbox.sandboxID, ...cellsOf(sandbox)]),
      );
    return 0;
  });
}

const COLUMNS = ["TEMPLATE", "STATE", "CPU", "MEM", "DISK", "STARTED", "TIME LEFT"];

function cellsOf(sandbox: ListedSandbox): string[] {
  return [
    sandbox.alias ?? sandbox.templateID,
    sandbox.state,
    String(sandbox.cpuCount),
    `${sandbox.memoryMB} MiB`,
    `${sandbox.diskSizeMB} MiB`,
    localTime(new Date(sandbox.startedAt)),
    sandbox.state === "running" ? duration(Date.parse(sandbox.endAt) - Date.now()) : "",
  ];
}

async function printTree(client: SvcClient, sandboxes: readonly ListedSandbox[], isFiltered: boolean): Promise<void> {
  const rows = treeOf(sandboxes);
  // A parent may be missing only because the filter excludes it.
  const isMissing = rows.some(({ sandbox }) => sandbox === undefined);
  const there = new Set(isFiltered && isMissing ? (await collect(client.list())).map(({ sandboxID }) => sandboxID) : []);
  printTable(
    ["SANDBOX ID", "DEPTH", ...COLUMNS],
    rows.map(({ lead, sandboxID, sandbox }) => [
      `${lead}${sandboxID}`,
      ...(sandbox === undefined ? ["", there.has(sandboxID) ? "(not listed)" : "(gone)"] : [String(sandbox.forkDepth), ...cellsOf(sandbox)]),
    ]),
  );
}

/** Formats as 2026-01-31 09:05:00 in this machine's time zone. */
export function localTime(date: Date): string {
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19).replace("T", " ");
}
