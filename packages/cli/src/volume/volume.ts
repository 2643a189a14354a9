// `svc volume`: directories that outlive sandboxes and that several sandboxes mount at once.
import { createReadStream, createWriteStream } from "node:fs";
import { stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { pipeline } from "node:stream/promises";
import type { SvcClient } from "@svc/contract/client.ts";
import { fail } from "@svc/contract/failures.ts";
import { byteSize, type OutputFormat, outputFormat, printJSON, printTable } from "@svc/contract/table.ts";
import type { Volume, VolumeStat } from "@svc/contract/volumes.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { EXIT_FAILURE, UsageError } from "../output/complain.ts";
import { forEach } from "../output/for-each.ts";
import { localTime } from "../sandbox/list.ts";

type Listing = AccessOptions & { quiet?: true; output?: OutputFormat };

export function createVolume(name: string, { size, output, ...access }: AccessOptions & { size?: number; output?: OutputFormat }): Promise<number> {
  return withClient(access, async (client) => {
    const { token: _, ...made } = await client.volumes.create({ name, ...(size === undefined ? {} : { sizeMB: size }) });
    if (outputFormat(output) === "json") printJSON(made);
    else printVolumes([made]);
    return 0;
  });
}

export function listVolumes({ quiet, output, ...access }: Listing): Promise<number> {
  return withClient(access, async (client) => {
    const volumes = await client.volumes.list();
    if (quiet === true) for (const { name } of volumes) process.stdout.write(`${name}\n`);
    else if (outputFormat(output) === "json") printJSON(volumes);
    else printVolumes(volumes);
    return 0;
  });
}

export function deleteVolumes(references: readonly string[], access: AccessOptions): Promise<number> {
  return withClient(access, async (client) => {
    const done = await forEach(references, async (reference) => {
      await client.volumes.delete(reference);
      process.stdout.write(`${reference}\n`);
    });
    return done === references.length ? 0 : EXIT_FAILURE;
  });
}

export function listFiles(asked: string, { output, depth, ...access }: AccessOptions & { output?: OutputFormat; depth?: number }): Promise<number> {
  const { volume, path } = split(asked);
  return withClient(access, async (client) => {
    const files = await client.volumes.files(await client.volumes.open(volume), path, depth);
    if (outputFormat(output) === "json") printJSON(files);
    else printFiles(files);
    return 0;
  });
}

export function putFile(local: string, asked: string, access: AccessOptions): Promise<number> {
  const { volume, path } = split(asked);
  return withClient(access, async (client) => {
    const found = local === "-" ? undefined : await stat(local).catch(() => fail("FILE_NOT_FOUND", `${local}: there is no such file`));
    if (found?.isDirectory() === true) fail("INVALID_REQUEST", `${local} is a directory: expected a file, or - for stdin`);
    const isFolder = asked.endsWith("/") || path === "/";
    if (isFolder && local === "-") fail("INVALID_REQUEST", `${asked}: expected the path of the file, since stdin has no name`);
    const opened = await client.volumes.open(volume);
    const source = found === undefined ? process.stdin : createReadStream(local);
    const mode = found === undefined ? {} : { mode: found.mode & 0o777 };
    const written = await client.volumes.write(opened, isFolder ? join(path, basename(local)) : path, source, mode);
    process.stdout.write(`${volume}:${written.path}\n`);
    return 0;
  });
}

export function getFile(asked: string, local: string | undefined, access: AccessOptions): Promise<number> {
  const { volume, path } = split(asked);
  return withClient(access, async (client) => {
    const body = await client.volumes.read(await client.volumes.open(volume), path);
    if (local === "-") await pipeline(body, process.stdout, { end: false });
    else await pipeline(body, createWriteStream(await localPath(local, path)));
    return 0;
  });
}

async function localPath(local: string | undefined, path: string): Promise<string> {
  if (local === undefined) return basename(path);
  const isFolder = await stat(local).then(
    (found) => found.isDirectory(),
    () => false,
  );
  return isFolder ? join(local, basename(path)) : local;
}

export function removeFiles(asked: readonly string[], access: AccessOptions): Promise<number> {
  return withClient(access, async (client) => {
    const done = await forEach(asked, async (each) => {
      await remove(client, each);
      process.stdout.write(`${each}\n`);
    });
    return done === asked.length ? 0 : EXIT_FAILURE;
  });
}

async function remove(client: SvcClient, asked: string): Promise<void> {
  const { volume, path } = split(asked);
  await client.volumes.remove(await client.volumes.open(volume), path);
}

/** NAME:PATH, or NAME for its root. */
function split(asked: string): { volume: string; path: string } {
  const at = asked.indexOf(":");
  const volume = at === -1 ? asked : asked.slice(0, at);
  if (!/^[a-zA-Z0-9_-]+$/.test(volume)) throw new UsageError(`expected VOLUME:PATH, got ${JSON.stringify(asked)}`);
  const path = at === -1 ? "" : asked.slice(at + 1);
  return { volume, path: path.startsWith("/") ? path : `/${path}` };
}

function printVolumes(volumes: readonly Volume[]): void {
  printTable(
    ["VOLUME ID", "NAME", "USED", "SIZE", "SANDBOXES", "NODE", "CREATED"],
    volumes.map(({ volumeID, name, usedBytes, sizeMB, sandboxIDs, nodeID, createdAt }) => [
      volumeID,
      name,
      byteSize(usedBytes),
      `${sizeMB} MiB`,
      String(sandboxIDs.length),
      nodeID ?? "all",
      localTime(new Date(createdAt)),
    ]),
  );
}

function printFiles(files: readonly VolumeStat[]): void {
  printTable(
    ["MODE", "OWNER", "SIZE", "CHANGED", "PATH"],
    files.map(({ mode, uid, gid, size, mtime, path, type, target }) => [
      mode.toString(8).padStart(4, "0"),
      `${uid}:${gid}`,
      type === "directory" ? "-" : byteSize(size),
      localTime(new Date(mtime)),
      `${path}${type === "directory" ? "/" : ""}${target === undefined ? "" : ` -> ${target}`}`,
    ]),
  );
}
