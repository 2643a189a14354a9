// `svc expose`: names for ports of sandboxes.
import type { Preview } from "@svc/contract/previews.ts";
import { type OutputFormat, outputFormat, printJSON, printTable } from "@svc/contract/table.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { EXIT_FAILURE, UsageError } from "../output/complain.ts";
import { forEach } from "../output/for-each.ts";
import { localTime } from "./list.ts";

type Printing = AccessOptions & { output?: OutputFormat };

export function expose(sandboxID: string, port: number, { name, replace, output, ...access }: Printing & { name?: string; replace?: true }): Promise<number> {
  if (name === undefined) throw new UsageError("expected --name NAME, the name for this port, got none");
  return withClient(access, async (client) => {
    const made = await client.previews.create({ name, sandboxID, port, replace: replace === true });
    const url = urlOf(client.baseURL, made);
    if (outputFormat(output) === "json") printJSON({ ...made, url });
    else process.stdout.write(`${url}\n`);
    return 0;
  });
}

export function listPreviews(sandboxID: string | undefined, { quiet, output, ...access }: Printing & { quiet?: true }): Promise<number> {
  return withClient(access, async (client) => {
    const previews = await client.previews.list(sandboxID);
    if (quiet === true) for (const { name } of previews) process.stdout.write(`${name}\n`);
    else if (outputFormat(output) === "json") printJSON(previews.map((each) => ({ ...each, url: urlOf(client.baseURL, each) })));
    else printTable(["NAME", "SANDBOX ID", "PORT", "URL", "CREATED", "STATE"], previews.map(rowOf(client.baseURL)));
    return 0;
  });
}

export function removePreviews(names: readonly string[], access: AccessOptions): Promise<number> {
  return withClient(access, async (client) => {
    const done = await forEach(names, async (name) => {
      await client.previews.delete(name);
      process.stdout.write(`${name}\n`);
    });
    return done === names.length ? 0 : EXIT_FAILURE;
  });
}

const rowOf =
  (baseURL: string) =>
  (each: Preview): string[] => [
    each.name,
    each.sandboxID,
    String(each.port),
    urlOf(baseURL, each),
    localTime(new Date(each.createdAt)),
    each.endedAt === null ? "" : `ended ${localTime(new Date(each.endedAt))}`,
  ];

const urlOf = (baseURL: string, { host }: Preview): string => `${new URL(baseURL).protocol}//${host}`;
