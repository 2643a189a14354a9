// `svc secret`: values that the node inserts into requests at egress, and that no sandbox has.
import { createInterface } from "node:readline";
import { asFailure } from "@svc/contract/failures.ts";
import type { Secret } from "@svc/contract/secrets.ts";
import { type OutputFormat, outputFormat, printJSON, printTable } from "@svc/contract/table.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { EXIT_FAILURE, UsageError } from "../output/complain.ts";
import { forEach } from "../output/for-each.ts";
import { localTime } from "../sandbox/list.ts";

type Printing = AccessOptions & { output?: OutputFormat };

/** Reads the value from stdin, or without echo from the terminal: an argument would show it to every user of the machine. */
export function setSecret(name: string, { metadata, output, ...access }: Printing & { metadata?: Record<string, string> }): Promise<number> {
  return withClient(access, async (client) => {
    const value = process.stdin.isTTY ? await typed(`value of ${name}: `) : await piped();
    if (value === "") throw new UsageError("expected the secret's value on stdin, got nothing");
    const request = { value, ...(metadata === undefined ? {} : { metadata }) };
    const kept = await client.secrets.update(name, request).catch((error: unknown) => {
      if (asFailure(error).name !== "SECRET_NOT_FOUND") throw error;
      return client.secrets.create({ name, ...request });
    });
    if (outputFormat(output) === "json") printJSON(kept);
    else printSecrets([kept]);
    return 0;
  });
}

export function listSecrets({ quiet, output, ...access }: Printing & { quiet?: true }): Promise<number> {
  return withClient(access, async (client) => {
    const secrets: Secret[] = [];
    for await (const secret of client.secrets.list()) secrets.push(secret);
    if (quiet === true) for (const { name } of secrets) process.stdout.write(`${name}\n`);
    else if (outputFormat(output) === "json") printJSON(secrets);
    else printSecrets(secrets);
    return 0;
  });
}

export function deleteSecrets(references: readonly string[], access: AccessOptions): Promise<number> {
  return withClient(access, async (client) => {
    const done = await forEach(references, async (reference) => {
      await client.secrets.delete(reference);
      process.stdout.write(`${reference}\n`);
    });
    return done === references.length ? 0 : EXIT_FAILURE;
  });
}

export function showAuthority({ output, ...access }: Printing): Promise<number> {
  return withClient(access, async (client) => {
    const authority = await client.secrets.authority();
    if (outputFormat(output) === "json") printJSON(authority);
    else process.stdout.write(authority.certificate);
    return 0;
  });
}

async function piped(): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of process.stdin) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks)
    .toString("utf8")
    .replace(/\r?\n$/, "");
}

async function typed(prompt: string): Promise<string> {
  process.stderr.write(prompt);
  const lines = createInterface({ input: process.stdin, terminal: true });
  try {
    return await new Promise<string>((resolve) => lines.once("line", resolve).once("close", () => resolve("")));
  } finally {
    lines.close();
    process.stderr.write("\n");
  }
}

function printSecrets(secrets: readonly Secret[]): void {
  printTable(
    ["SECRET ID", "NAME", "VERSION", "METADATA", "UPDATED"],
    secrets.map(({ secretID, name, currentVersion, metadata, updatedAt }) => [
      secretID,
      name,
      String(currentVersion),
      Object.entries(metadata)
        .map(([key, text]) => `${key}=${text}`)
        .join(", "),
      localTime(new Date(updatedAt)),
    ]),
  );
}
