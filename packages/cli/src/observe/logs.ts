// `svc logs`: the log of a sandbox's lifecycle, processes and network.
import { styleText } from "node:util";
import type { LogEntry } from "@svc/contract/observe.ts";
import { type OutputFormat, outputFormat, plain, printJSONLine } from "@svc/contract/table.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { remark } from "../output/complain.ts";
import { oneRemark } from "../output/reconnect.ts";

type Options = AccessOptions & {
  follow?: true;
  network?: true;
  kind?: "lifecycle" | "process" | "network";
  level?: LogEntry["level"];
  since?: Date;
  search?: string;
  number?: number;
  output?: OutputFormat;
};

export function logs(sandboxID: string, options: Options): Promise<number> {
  const { follow, network, level, since, search, number, output, ...access } = options;
  const kind = network === true ? "network" : options.kind;
  return withClient(access, async (client) => {
    const line = oneRemark();
    const entries = client.logs(sandboxID, {
      follow: follow === true,
      onReconnect: line.broken,
      ...(kind === undefined ? {} : { kind }),
      ...(level === undefined ? {} : { level }),
      ...(since === undefined ? {} : { since }),
      ...(search === undefined ? {} : { search }),
      ...(number === undefined ? {} : { tail: number }),
    });
    const isText = outputFormat(output) === "table";
    for await (const entry of entries) {
      line.restored();
      if (isText) process.stdout.write(`${textOf(entry)}\n`);
      else printJSONLine(entry);
    }
    if (follow === true) remark(`sandbox ${sandboxID} is gone; its log stays for an hour`);
    return 0;
  });
}

const COLOURS = { debug: "gray", info: "cyan", warn: "yellow", error: "red" } as const;

function textOf({ timestamp, level, message, fields }: LogEntry): string {
  const time = styleText("dim", clock(timestamp), { stream: process.stdout });
  const word = styleText(COLOURS[level], level.toUpperCase().padEnd(5), { stream: process.stdout });
  const kind = plain(fields["kind"]).padEnd("lifecycle".length);
  return `${time}  ${word}  ${kind}  ${plain(message.replaceAll("\t", "    ").trimEnd())}`;
}

/** Formats as 2026-01-31 09:05:00.123 in this machine's time zone. */
export function clock(timestamp: string): string {
  const date = new Date(timestamp);
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 23).replace("T", " ");
}
