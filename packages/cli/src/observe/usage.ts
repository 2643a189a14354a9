// `svc usage`: what sandboxes used over time, as a table, CSV or JSON.
import type { SvcClient } from "@svc/contract/client.ts";
import type { Input } from "@svc/contract/operation.ts";
import { byteSize, printJSON, printTable } from "@svc/contract/table.ts";
import { addAmounts, type getUsage, NO_AMOUNTS, type UsageAnswer, type UsageGroup, type UsageRow, usageMembers } from "@svc/contract/usage.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { remark } from "../output/complain.ts";

export type UsageFormat = "table" | "csv" | "json";
export type Grouping = { readonly by: UsageGroup; readonly label?: string };
type Options = AccessOptions & { from?: Date; to?: Date; by?: Grouping; output?: UsageFormat; format?: UsageFormat };

export function usage({ from, to, by = { by: "tenant" }, output, format, ...access }: Options): Promise<number> {
  return withClient(access, async (client) => {
    const query = { ...by, ...(from === undefined ? {} : { from: from.toISOString() }), ...(to === undefined ? {} : { to: to.toISOString() }) };
    const answer = await all(client, query);
    const title = by.label ?? by.by;
    const chosen = output ?? format ?? "table";
    if (chosen === "json") printJSON(answer);
    else if (chosen === "csv") process.stdout.write(csv(title, answer.rows));
    else print(title, answer);
    for (const node of answer.missingNodes) remark(`svc: node ${node} does not answer: what its sandboxes used is not included`);
    return 0;
  });
}

async function all(client: SvcClient, query: Input<typeof getUsage>): Promise<UsageAnswer> {
  const first = await client.usage(query);
  const rows = [...first.rows];
  const missing = new Set(first.missingNodes);
  for (let { next } = first; next !== undefined; ) {
    const page = await client.usage({ ...query, to: first.to, after: next });
    rows.push(...page.rows);
    for (const node of page.missingNodes) missing.add(node);
    next = page.next;
  }
  return { from: first.from, to: first.to, rows, missingNodes: [...missing] };
}

function print(title: string, { from, to, rows }: UsageAnswer): void {
  const sum = rows.reduce((total, row) => ({ ...addAmounts(total, row), sandboxes: total.sandboxes + row.sandboxes }), { ...NO_AMOUNTS, sandboxes: 0 });
  const shown = rows.length > 1 ? [...rows, { ...sum, value: "all" }] : rows;
  printTable(
    [title.toUpperCase(), "SANDBOXES", "CPU S", "MEMORY GiB·H", "DISK GiB·H", "IN", "OUT", "RUNNING H", "PAUSED H"],
    shown.map((row) => [
      row.value === "" ? "-" : row.value,
      String(row.sandboxes),
      row.cpuSeconds.toFixed(1),
      hours(row.memoryGiBSeconds),
      hours(row.diskGiBSeconds),
      byteSize(row.networkInBytes),
      byteSize(row.networkOutBytes),
      hours(row.runningSeconds),
      hours(row.pausedSeconds),
    ]),
  );
  remark(`from ${from} to ${to}`);
}

const hours = (seconds: number): string => (seconds / 3600).toFixed(3);

/** One header line, with the members' names of the API. */
function csv(title: string, rows: readonly UsageRow[]): string {
  const lines = rows.map((row) => [cell(row.value), row.sandboxes, ...usageMembers.map((member) => Math.round(row[member] * 1000) / 1000)].join(","));
  return `${[[cell(title), "sandboxes", ...usageMembers].join(","), ...lines].join("\r\n")}\r\n`;
}

/** RFC 4180; a value that a spreadsheet would take for a formula gets an apostrophe, since clients choose labels. */
function cell(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
