// `svc snapshot create|list|delete`: what a sandbox was at one moment, to start others from.
import type { SnapshotInfo } from "@svc/contract/lifecycle.ts";
import { type AccessOptions, withClient } from "./access.ts";
import { EXIT_FAILURE, UsageError } from "./complain.ts";
import { collect, forEach } from "./for-each.ts";
import { localTime } from "./list.ts";
import { byteSize, type OutputFormat, outputFormat, printJSON, printTable } from "./table.ts";

type CreateOptions = AccessOptions & { filesOnly?: true; output?: OutputFormat };
type ListOptions = AccessOptions & { sandbox?: string; name?: string; quiet?: true; output?: OutputFormat };

const NAME = /^[a-z0-9][a-z0-9_.-]*(:[A-Za-z0-9][A-Za-z0-9_.-]*)?$/;

export function createSnapshot(sandboxID: string, name: string | undefined, { filesOnly, output, ...access }: CreateOptions): Promise<number> {
  if (name !== undefined && !NAME.test(name))
    throw new UsageError(`a snapshot's name is NAME or NAME:TAG, of lower-case letters, digits, '-', '_' and '.'; found ${JSON.stringify(name)}`);
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
      // The same call deletes templates: a slip in the name must not.
      const { snapshotID } = await client.snapshot(reference);
      await client.deleteSnapshot(snapshotID);
      process.stdout.write(`${reference}\n`);
    });
    return done === references.length ? 0 : EXIT_FAILURE;
  });
}

function printSnapshots(snapshots: readonly SnapshotInfo[]): void {
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
