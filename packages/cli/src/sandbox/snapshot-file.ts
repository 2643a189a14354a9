// `svc snapshot export|import`: writes a snapshot to a file, and reads it into a node.
import { createReadStream, createWriteStream, existsSync, statSync } from "node:fs";
import { rename, rm } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { pipeline } from "node:stream/promises";
import { fail } from "@svc/contract/failures.ts";
import { type OutputFormat, outputFormat, printJSON } from "@svc/contract/table.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { interruptible, temporaryName } from "../copy/copy.ts";
import { UsageError } from "../output/complain.ts";
import { openProgress, type Progress } from "../output/progress.ts";
import { write } from "../output/write.ts";
import { printSnapshots, SNAPSHOT_NAME } from "./snapshot.ts";

type ExportOptions = AccessOptions & { withBase?: true; force?: true; quiet?: true };
type ImportOptions = AccessOptions & { name?: string; quiet?: true; output?: OutputFormat };

/** The file contains the sandbox's memory, including its secrets. */
const OWNER_ALONE = 0o600;
const STANDARD = "-";

export function exportSnapshot(name: string, file: string, { withBase, force, quiet, ...access }: ExportOptions): Promise<number> {
  if (file !== STANDARD && force !== true && existsSync(file)) fail("FILE_EXISTS", `${file} exists; --force replaces it`);
  if (file !== STANDARD && !existsSync(dirname(resolve(file)))) fail("FILE_NOT_FOUND", `there is no folder ${dirname(file)} to write ${file} into`);
  return withClient(access, (client) =>
    interruptible(async (signal) => {
      const { body, sizeBytes } = await client.exportSnapshot(name, { withBase: withBase === true, signal });
      const progress = openProgress(`export of ${name}`, sizeBytes, 1, quiet === true);
      let isWhole = false;
      try {
        if (file === STANDARD) for await (const part of counted(body, progress)) await write(process.stdout, Buffer.from(part));
        else await toFile(counted(body, progress), resolve(file), sizeBytes, signal);
        isWhole = true;
      } finally {
        progress.close(isWhole);
      }
    }),
  );
}

async function toFile(body: AsyncIterable<Uint8Array>, file: string, sizeBytes: number, signal: AbortSignal): Promise<void> {
  const temporary = temporaryName(file);
  try {
    await pipeline(body, createWriteStream(temporary, { flags: "wx", mode: OWNER_ALONE, flush: true }), { signal });
    const { size } = statSync(temporary);
    if (size !== sizeBytes) fail("SNAPSHOT_DAMAGED", `the export ended after ${size} of ${sizeBytes} bytes; the node's log says why`);
    await rename(temporary, file);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

export function importSnapshot(file: string, { name, quiet, output, ...access }: ImportOptions): Promise<number> {
  if (name !== undefined && !SNAPSHOT_NAME.test(name))
    throw new UsageError(`--name: expected NAME or NAME:TAG, of lower-case letters, digits, '-', '_' and '.', got ${JSON.stringify(name)}`);
  const found = file === STANDARD ? undefined : (statSync(file, { throwIfNoEntry: false }) ?? fail("FILE_NOT_FOUND", `there is no file ${file}`));
  if (found?.isDirectory() === true) throw new UsageError(`${file} is a folder; expected a file that svc snapshot export wrote`);
  return withClient(access, (client) =>
    interruptible(async (signal) => {
      const progress = openProgress(`import of ${file}`, found?.size, 1, quiet === true);
      let isWhole = false;
      try {
        const source = file === STANDARD ? process.stdin : createReadStream(file, { highWaterMark: 2 ** 20 });
        const { isNew, ...snapshot } = await client.importSnapshot(counted(source, progress), { name, signal });
        isWhole = true;
        progress.close(true);
        if (outputFormat(output) === "json") printJSON(snapshot);
        else printSnapshots([snapshot]);
        if (!isNew) process.stderr.write(`snapshot ${snapshot.snapshotID} was there already; nothing was changed\n`);
      } finally {
        if (!isWhole) progress.close(false);
      }
    }),
  );
}

async function* counted(body: AsyncIterable<Uint8Array>, progress: Progress): AsyncGenerator<Uint8Array> {
  for await (const part of body) {
    progress.add(part.length);
    yield part;
  }
}
