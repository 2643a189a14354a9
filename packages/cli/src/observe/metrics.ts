// `svc metrics`: the resource usage of sandboxes, once, for the last hour, or continuously.
import type { SvcClient } from "@svc/contract/client.ts";
import type { SandboxMetric } from "@svc/contract/observe.ts";
import { byteSize, type OutputFormat, outputFormat, printJSON, printJSONLine, printTable } from "@svc/contract/table.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { EXIT_FAILURE, remark, UsageError } from "../output/complain.ts";
import { localTime } from "../sandbox/list.ts";
import { Watch } from "./metrics-watch.ts";

type Options = AccessOptions & { all?: true; watch?: true; follow?: true; history?: true; output?: OutputFormat };

export function metrics(ids: readonly string[], { all, watch, follow, history, output, ...access }: Options): Promise<number> {
  if (all === true && ids.length > 0) throw new UsageError("metrics takes ids or --all, not both");
  if (all !== true && ids.length === 0) throw new UsageError("metrics: expected the ids of sandboxes, or --all; svc list shows them");
  const targets = all === true ? undefined : [...new Set(ids)];
  const isWatched = watch === true || follow === true;
  const [only, ...others] = targets ?? [];
  if (history === true && (isWatched || only === undefined || others.length > 0))
    throw new UsageError("metrics --history: expected the id of one sandbox, without --all and --watch");
  return withClient(access, async (client) => {
    const isTable = outputFormat(output) === "table";
    if (history === true && only !== undefined) return await printSamples(client, only, isTable);
    if (!isWatched) return await printNewest(client, targets, isTable);
    if (output === undefined && process.stdout.isTTY) return await (await import("./metrics-live.ts")).showLive(client, targets);
    return await printAsTheyCome(client, targets, isTable);
  });
}

async function printSamples(client: SvcClient, sandboxID: string, isTable: boolean): Promise<number> {
  const samples = await client.metrics(sandboxID);
  if (!isTable) printJSON(samples);
  else {
    printTable(
      COLUMNS,
      samples.map((sample) => cellsOf(sample)),
    );
  }
  return 0;
}

async function printNewest(client: SvcClient, targets: readonly string[] | undefined, isTable: boolean): Promise<number> {
  const watch = new Watch(client, targets);
  await watch.refresh();
  const rows = watch.all().flatMap(({ sandboxID, samples }) => samples.slice(-1).map((sample) => ({ sandboxID, ...sample })));
  if (!isTable) printJSON(rows);
  else if (rows.length > 0 || watch.missing.length === 0) {
    printTable(
      ["SANDBOX ID", ...COLUMNS],
      rows.map((row) => [row.sandboxID, ...cellsOf(row)]),
    );
  }
  for (const id of watch.missing) remark(`svc: there is no sandbox ${id}`);
  const sampled = new Set(rows.map(({ sandboxID }) => sandboxID));
  for (const { sandboxID, state } of watch.all())
    if (!sampled.has(sandboxID))
      remark(`svc: sandbox ${sandboxID} has no sample ${state === "paused" ? "while it is paused" : "yet: one is taken every few seconds"}`);
  return watch.missing.length > 0 ? EXIT_FAILURE : 0;
}

/** Prints a line per sample until Ctrl-C, or until none of the given sandboxes is left. */
async function printAsTheyCome(client: SvcClient, targets: readonly string[] | undefined, isTable: boolean): Promise<number> {
  const watch = new Watch(client, targets);
  for (;;) {
    const fresh = await watch.refresh();
    for (const { sandboxID, ...sample } of fresh) {
      if (isTable) process.stdout.write(`${[sandboxID, ...cellsOf(sample)].join("  ")}\n`);
      else printJSONLine({ sandboxID, ...sample });
    }
    if (targets !== undefined && watch.missing.length === targets.length) {
      remark(`${targets.length === 1 ? `sandbox ${targets[0]} is` : "the sandboxes are"} gone`);
      return watch.sawAny ? 0 : EXIT_FAILURE;
    }
    await watch.wait();
  }
}

const COLUMNS = ["TIME", "CPU", "OF", "MEM", "OF", "CACHE", "DISK", "OF"];

function cellsOf(sample: SandboxMetric): string[] {
  const { timestamp, cpuUsedPct, cpuCount, memUsed, memTotal, memCache, diskUsed, diskTotal } = sample;
  return [
    localTime(new Date(timestamp)),
    `${cpuUsedPct.toFixed(1)} %`,
    `${cpuCount * 100} %`,
    ...[memUsed, memTotal, memCache, diskUsed, diskTotal].map(byteSize),
  ];
}
