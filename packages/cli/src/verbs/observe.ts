// The verbs for observation: logs, metrics, usage, events.
import { InvalidArgumentError, Option } from "commander";
import type { Grouping } from "../observe/usage.ts";
import { count, outputOption, several, type Verb } from "./verb.ts";

/** The values of contract/src/observe.ts; they are not imported, since every --help would then load all schemas. */
const LEVELS = ["debug", "info", "warn", "error"];
const KINDS = ["lifecycle", "process", "network"];
const MAX_TAIL = 1000;
const USAGE_FORMATS = ["table", "csv", "json"];

export function addObserveVerbs(program: Verb): void {
  program
    .clientVerb("logs", "show a sandbox's log: its lifecycle, processes and denied connections")
    .argument("<id>", "the sandbox; for an hour after its end, too")
    .option("-f, --follow", "keep printing new entries until the sandbox is gone")
    .option("--network", "only denied connections and names, with the rule")
    .addOption(new Option("--kind <kind>", "only entries of this kind").choices(KINDS).conflicts("network"))
    .addOption(new Option("--level <level>", "only entries of this level or above").choices(LEVELS))
    .option("--since <when>", "only entries since: how long ago (10m, 2h, 1d) or a time (2026-01-31T09:05:00Z)", moment)
    .option("--search <text>", "only entries that contain this text")
    .option("-n, --number <count>", `show only the newest entries, this many (1 to ${MAX_TAIL})`, count(MAX_TAIL))
    .addOption(outputOption())
    .usage("[options] <id>")
    .addHelpText(
      "after",
      `
Prints text, or one JSON object per line with --output json. If the server restarts, it waits and continues; no entry is
shown twice.

Examples:
  svc logs $ID -n 50 -f
  svc logs $ID --network
  svc logs $ID --level warn --since 10m --output json`,
    )
    .run(async (id: string, options: never) => (await import("../observe/logs.ts")).logs(id, options));

  program
    .clientVerb("metrics", "show what sandboxes use: CPU, memory, disk")
    .argument("[ids...]", "the sandboxes")
    .option("--all", "every sandbox, including new ones")
    .option("-w, --watch", "keep showing: a live view on a terminal, a line for each new sample in a pipe or with --output")
    .option("--history", "the samples of the last hour, of one sandbox")
    // The former name of -w, hidden from the help.
    .addOption(new Option("-f, --follow").hideHelp())
    .addOption(outputOption())
    .usage("[options] <ids...>")
    .addHelpText(
      "after",
      `
Prints the newest sample of each sandbox, and ends. The live view of --watch has a history, and the busiest sandbox first; q or
Ctrl-C quits. 100 % is one full CPU.

Examples:
  svc metrics $ID
  svc metrics --all --watch
  svc metrics $ID --history --output json
  svc metrics $ID -w --output json | jq .memUsed`,
    )
    .run(async (ids: string[], options: never) => (await import("../observe/metrics.ts")).metrics(ids, options));

  program
    .clientVerb("usage", "show what sandboxes used over time: processor, memory, disk, network")
    .option("--from <when>", "since: how long ago (2h, 7d) or a time (2026-01-31T09:00:00Z) (default: the first of this month, UTC)", moment)
    .option("--to <when>", "until (default: now)", moment)
    .option("--by <group>", "sums by key, tenant, sandbox, or label:NAME of the sandboxes' metadata (default: tenant)", grouping)
    .addOption(new Option("-o, --output <format>", "how to print (default: a table)").choices(USAGE_FORMATS))
    // Accepted as well, since billing scripts ask for a format.
    .addOption(new Option("--format <format>").choices(USAGE_FORMATS).conflicts("output").hideHelp())
    .addHelpText(
      "after",
      `
Counts whole hours. Ended sandboxes are included; paused ones use disk alone. A named key sees what its tenant used.

Examples:
  svc usage
  svc usage --from 24h --by sandbox
  svc usage --from 2026-01-01 --to 2026-02-01 --by label:customer --output csv`,
    )
    .run(async (options: never) => (await import("../observe/usage.ts")).usage(options));

  program
    .clientVerb("events", "show what happened to sandboxes, snapshots and templates")
    .option("-f, --follow", "keep printing new events; without --since, only new ones")
    .option("--since <id>", "events after the one with this id; 0: all that are kept", eventID)
    .option("--type <type>", "only events of this type, for example sandbox.ended, ended, or template (repeat for more)", several)
    .option("--sandbox <id>", "only events of this sandbox")
    .addOption(outputOption())
    .addHelpText(
      "after",
      `
Prints text, or one JSON object per line with --output json. With -f it continues over restarts of the server, each event once.

Examples:
  svc events
  svc events -f --type ended
  svc events --since 1200 --sandbox $ID`,
    )
    .run(async (options: never) => (await import("../observe/events.ts")).events(options));
}

/** Parses what usage is summed by: key, tenant, sandbox, or label:NAME. */
function grouping(text: string): Grouping {
  if (text === "key" || text === "tenant" || text === "sandbox") return { by: text };
  if (/^label:./.test(text)) return { by: "label", label: text.slice("label:".length) };
  throw new InvalidArgumentError("Expected key, tenant, sandbox, or label:NAME.");
}

const UNITS = { s: 1, m: 60, min: 60, h: 3600, d: 86_400 } as const;

export function moment(text: string, _before?: Date, nowMs = Date.now()): Date {
  const [, amount, unit] = /^(\d{1,9})\s*(s|m|min|h|d)$/.exec(text) ?? [];
  if (amount !== undefined && unit !== undefined) return new Date(nowMs - Number(amount) * UNITS[unit as keyof typeof UNITS] * 1000);
  const time = /^\d{4}-\d\d-\d\d/.test(text) ? Date.parse(text) : Number.NaN;
  if (Number.isNaN(time)) throw new InvalidArgumentError("Expected how long ago (30s, 10m, 2h, 1d) or a time (2026-01-31T09:05:00Z).");
  return new Date(time);
}

/** A gateway's id contains one id for each node. */
function eventID(text: string): string {
  if (!/^[a-z0-9:.-]{1,65536}$/.test(text) || !/\d$/.test(text)) throw new InvalidArgumentError("Expected an event's id, or 0.");
  return text;
}
