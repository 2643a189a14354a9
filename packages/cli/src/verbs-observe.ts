// The verbs that watch: logs, metrics, events.
import { InvalidArgumentError, Option } from "commander";
import { count, outputOption, several, type Verb } from "./verb.ts";

/** As contract/src/observe.ts has them; not imported, since every --help would load all schemas. */
const LEVELS = ["debug", "info", "warn", "error"];
const KINDS = ["lifecycle", "process", "network"];
const MAX_TAIL = 1000;

export function addObserveVerbs(program: Verb): void {
  program
    .clientVerb("logs", "show what a sandbox's life, processes and network had to say")
    .argument("<id>", "the sandbox; for an hour after its end, too")
    .option("-f, --follow", "wait for what comes, until the sandbox is gone")
    .option("--network", "only its network: what was denied, and why")
    .addOption(new Option("--kind <kind>", "only what this speaks").choices(KINDS).conflicts("network"))
    .addOption(new Option("--level <level>", "this level and those above it").choices(LEVELS))
    .option("--since <when>", "from this time on: 10m, 2h, 1d ago, or 2026-01-31T09:05:00Z", moment)
    .option("--search <text>", "only entries that hold this text")
    .option("-n, --number <count>", `begin with this many of the newest entries, ${MAX_TAIL} at most`, count(MAX_TAIL))
    .addOption(outputOption())
    .usage("[options] <id>")
    .addHelpText(
      "after",
      `
Lines of text on a terminal, one JSON object a line in a pipe. A server that is restarted meanwhile is waited for; no entry
is shown twice.

Examples:
  svc logs $ID -n 50 -f
  svc logs $ID --network
  svc logs $ID --level warn --since 10m --output json`,
    )
    .run(async (id: string, options: never) => (await import("./logs.ts")).logs(id, options));

  program
    .clientVerb("metrics", "show what sandboxes use: CPU, memory, disk")
    .argument("[ids...]", "the sandboxes")
    .option("--all", "every sandbox, those to come included")
    .option("-f, --follow", "without a terminal: a line for each new sample")
    .addOption(outputOption())
    .usage("[options] <ids...>")
    .addHelpText(
      "after",
      `
On a terminal a live view with history, the busiest sandbox first; q or Ctrl-C ends it. In a pipe, or with --output: the samples
of the last hour for one sandbox, the newest sample of each for several. 100 % is one whole CPU.

Examples:
  svc metrics $ID
  svc metrics --all
  svc metrics $ID --output table
  svc metrics $ID -f --output json | jq .memUsed`,
    )
    .run(async (ids: string[], options: never) => (await import("./metrics.ts")).metrics(ids, options));

  program
    .clientVerb("events", "show what happened to sandboxes, snapshots and templates")
    .option("-f, --follow", "wait for what comes; without --since nothing else")
    .option("--since <id>", "what came after the event of this id; 0: all that is kept", eventID)
    .option("--type <type>", "only these, for example sandbox.ended, ended, or template (repeat for more)", several)
    .option("--sandbox <id>", "only those of this sandbox")
    .addOption(outputOption())
    .addHelpText(
      "after",
      `
Lines of text on a terminal, one JSON object a line in a pipe. With -f it goes on over restarts of the server, each event once.

Examples:
  svc events
  svc events -f --type ended
  svc events --since 1200 --sandbox $ID`,
    )
    .run(async (options: never) => (await import("./events.ts")).events(options));
}

const UNITS = { s: 1, m: 60, min: 60, h: 3600, d: 86_400 } as const;

export function moment(text: string, _before?: Date, nowMs = Date.now()): Date {
  const [, amount, unit] = /^(\d{1,9})\s*(s|m|min|h|d)$/.exec(text) ?? [];
  if (amount !== undefined && unit !== undefined) return new Date(nowMs - Number(amount) * UNITS[unit as keyof typeof UNITS] * 1000);
  const time = /^\d{4}-\d\d-\d\d/.test(text) ? Date.parse(text) : Number.NaN;
  if (Number.isNaN(time)) throw new InvalidArgumentError("It wants how long ago (30s, 10m, 2h, 1d) or a time (2026-01-31T09:05:00Z).");
  return new Date(time);
}

function eventID(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new InvalidArgumentError("It wants an event's id, or 0.");
  return Number(text);
}
