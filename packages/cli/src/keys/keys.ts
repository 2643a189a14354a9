// `svc keys`: named keys of tenants, beside the deployment's own key.
import type { CreatedKey, Role, ShownKey } from "@svc/contract/keys.ts";
import { type OutputFormat, outputFormat, printJSON, printTable } from "@svc/contract/table.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { EXIT_FAILURE } from "../output/complain.ts";
import { forEach } from "../output/for-each.ts";
import { localTime } from "../sandbox/list.ts";

type Printing = AccessOptions & { output?: OutputFormat };
export type CreateOptions = Printing & { tenant?: string; role?: Role; expires?: number; from?: string[] };

export function createKey(name: string, { tenant, role, expires, from, output, ...access }: CreateOptions): Promise<number> {
  return withClient(access, async (client) => {
    const made = await client.keys.create({
      name,
      ...(tenant === undefined ? {} : { tenant }),
      ...(role === undefined ? {} : { role }),
      ...(expires === undefined ? {} : { expiresAt: new Date(Date.now() + expires * 1000).toISOString() }),
      ...(from === undefined ? {} : { sourceAddresses: from }),
    });
    return printMade(made, output);
  });
}

export function rotateKey(reference: string, { overlap = 0, output, ...access }: Printing & { overlap?: number }): Promise<number> {
  return withClient(access, async (client) => printMade(await client.keys.rotate(reference, overlap), output));
}

export function listKeys({ quiet, all, output, ...access }: Printing & { quiet?: true; all?: true }): Promise<number> {
  return withClient(access, async (client) => {
    const keys = (await client.keys.list()).filter(({ state }) => all === true || state !== "revoked");
    if (quiet === true) for (const { id } of keys) process.stdout.write(`${id}\n`);
    else if (outputFormat(output) === "json") printJSON(keys);
    else printKeys(keys);
    return 0;
  });
}

export function showKey(reference: string, { output, ...access }: Printing): Promise<number> {
  return withClient(access, async (client) => {
    const key = await client.keys.get(reference);
    if (outputFormat(output) === "json") printJSON(key);
    else printKeys([key]);
    return 0;
  });
}

export function revokeKeys(references: readonly string[], access: AccessOptions): Promise<number> {
  return withClient(access, async (client) => {
    const done = await forEach(references, async (reference) => {
      await client.keys.revoke(reference);
      process.stdout.write(`${reference}\n`);
    });
    return done === references.length ? 0 : EXIT_FAILURE;
  });
}

/** The key alone goes to stdout, so that a script can take it from there; the rest, for people, goes to stderr. */
function printMade(made: CreatedKey, output: OutputFormat | undefined): number {
  if (outputFormat(output) === "json") printJSON(made);
  else {
    process.stdout.write(`${made.apiKey}\n`);
    process.stderr.write(`key ${made.name} (${made.id}) of tenant ${made.tenant}, role ${made.role}; it is not stored, and shown only now\n`);
    process.stderr.write(`as E2B's SDKs want it: ${made.key}\n`);
  }
  return 0;
}

function printKeys(keys: readonly ShownKey[]): void {
  const at = (time: string | null, otherwise: string) => (time === null ? otherwise : localTime(new Date(time)));
  printTable(
    ["KEY ID", "NAME", "TENANT", "ROLE", "STATE", "ENDS IN", "LAST USED", "EXPIRES", "FROM"],
    keys.map(({ id, name, tenant, role, state, mask, lastUsed, expiresAt, sourceAddresses }) => [
      id,
      name,
      tenant,
      role,
      state,
      mask.maskedValueSuffix,
      at(lastUsed, "never"),
      at(expiresAt, "never"),
      sourceAddresses.length === 0 ? "anywhere" : sourceAddresses.join(", "),
    ]),
  );
}
