// `svc snapshot create|list|delete`: the saved state of a sandbox, from which others start.
import type { SvcClient } from "@svc/contract/client.ts";
import { asFailure } from "@svc/contract/failures.ts";
import type { SnapshotInfo } from "@svc/contract/lifecycle.ts";
import { byteSize, type OutputFormat, outputFormat, printJSON, printTable } from "@svc/contract/table.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { EXIT_FAILURE, UsageError } from "../output/complain.ts";
import { collect, forEach } from "../output/for-each.ts";
import { localTime } from "./list.ts";

type CreateOptions = AccessOptions & { filesOnly?: true; output?: OutputFormat };
type ListOptions = AccessOptions & { sandbox?: string; name?: string; quiet?: true; output?: OutputFormat };

export const SNAPSHOT_NAME = /^[a-z0-9][a-z0-9_.-]*(:[A-Za-z0-9][A-Za-z0-9_.-]*)?$/;

export function createSnapshot(sandboxID: string, name: string | undefined, { filesOnly, output, ...access }: CreateOptions): Promise<number> {
  if (name !== undefined && !SNAPSHOT_NAME.test(name))
    throw new UsageError(`a snapshot's name: expected NAME or NAME:TAG, of lower-case letters, digits, '-', '_' and '.'; got ${JSON.stringify(name)}`);
  return withClient(access, async (client) => {
    const snapshot = await client.createSnapshot(sandboxID, { memory: filesOnly !== true, ...(name === undefined ? {} : { name }) });
    if (outputFormat(output) === "json") printJSON(snapshot);
    else printSnapshots([snapshot]);
    return 0;
  });
}

export function listSnapshots({ sandbox, name, quiet, output, ...access }: ListOptions): Promise<number> {
  return withClient(access, async (client) => {
    const filter = { ...(sandbox === undefined ? {} : { sandboxID: sandbox }), ...(name === undefined ? {} : { name }) };
    const snapshots = await collect(client.snapshots(filter));
    if (quiet === true) for (const { snapshotID } of snapshots) process.stdout.write(`${snapshotID}\n`);
    else if (outputFormat(output) === "json") printJSON(snapshots);
    else printSnapshots(snapshots);
    return 0;
  });
}

export function deleteSnapshots(references: readonly string[], access: AccessOptions): Promise<number> {
  return withClient(access, async (client) => {
    const done = await forEach(references, async (reference) => {
      // The same call deletes templates; resolving the id first ensures that a mistyped name cannot delete a template.
      await client.deleteSnapshot(await idOf(client, reference));
      process.stdout.write(`${reference}\n`);
    });
    return done === references.length ? 0 : EXIT_FAILURE;
  });
}

async function idOf(client: SvcClient, reference: string): Promise<string> {
  try {
    return (await client.snapshot(reference)).snapshotID;
  } catch (error) {
    // The record is unreadable, but the server still knows that the name belongs to a snapshot.
    if (asFailure(error).name === "QUARANTINED") return reference;
    throw error;
  }
}

export function printSnapshots(snapshots: readonly SnapshotInfo[]): void {
  printTable(
    ["SNAPSHOT ID", "NAMES", "SANDBOX", "KEPT", "CPU", "MEM", "SIZE", "CREATED"],
    snapshots.map((snapshot) => [
      snapshot.snapshotID,
      snapshot.names.join(", "),
      snapshot.sandboxID,
      snapshot.memory ? "memory, files" : "files",
      String(snapshot.cpuCount),
      `${snapshot.memoryMB} MiB`,
      byteSize(snapshot.sizeBytes),
      localTime(new Date(snapshot.createdAt)),
    ]),
  );
}
