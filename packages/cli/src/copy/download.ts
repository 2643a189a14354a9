// `svc download`: copies a file or a directory from a sandbox into a staging folder here, then renames it into place as a whole.
import { randomBytes } from "node:crypto";
import { mkdirSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { bytesOfText, shownText } from "@svc/contract/byte-text.ts";
import type { EnvdClient, RequestOptions } from "@svc/contract/envd.ts";
import { Failure, fail } from "@svc/contract/failures.ts";
import { withClient } from "../access/access.ts";
import { awakeSandbox } from "../access/open-envd.ts";
import { remark } from "../output/complain.ts";
import { openProgress, type Progress } from "../output/progress.ts";
import { write } from "../output/write.ts";
import { type ArchiveEntry, checkedArchive } from "./archive.ts";
import { addEntry, type CopyOptions, type CopyPlan, interruptible, olderAgent, openPlan, settleConflicts, settleRefused, sizesOf } from "./copy.ts";
import { isDirectory, realPath, standingLocal } from "./local-path.ts";
import { conflictsWith, placeTree, removeTree } from "./place.ts";
import { absolute } from "./remote-path.ts";
import { unpackTree } from "./tar.ts";

type Request = RequestOptions & { signal: AbortSignal };

export function download(sandboxID: string, remote: string, local: string | undefined, options: CopyOptions): Promise<number> {
  const { url, user } = options;
  return withClient(url === undefined ? {} : { url }, async (client) => {
    const envd = client.envd(await awakeSandbox(client, sandboxID));
    return await interruptible((signal) =>
      (local === "-" ? downloadToStdout(envd, remote, { user, signal }) : downloadPath(envd, remote, local, options, { user, signal })).catch((error) => {
        throw olderAgent(error, sandboxID);
      }),
    );
  });
}

async function downloadPath(envd: EnvdClient, remote: string, local: string | undefined, options: CopyOptions, request: Request): Promise<void> {
  const path = await absolute(envd, remote, request);
  const plan = openPlan();
  const planned = await envd.readTree(path, { ...request, plan: true }).catch((error) => missing(error, path));
  for await (const _ of checkedArchive(planned as AsyncIterable<Buffer>, (entry) => adds(plan, entry, path, options)));
  settleRefused(plan);
  if (plan.items.length === 0) return;
  const target = targetOf(remote, path, local);
  const force = options.force === true;
  settleConflicts(conflictsWith(plan, target, force), force);
  const parent = dirname(resolve(target));
  if (target !== local && local?.endsWith("/") === true) makeDirectory(parent);
  if (!isDirectory(parent))
    fail("FILE_NOT_FOUND", `nothing copied: there is no directory ${shownText(parent)} here; create it first (mkdir -p), or check the path`);
  const { files, bytes } = sizesOf(plan);
  const progress = openProgress(`download to ${shownText(target)}`, bytes, files, options.quiet === true);
  // The staging folder is next to the target, or in it if that is a directory: renames must stay on one file system.
  const stage = join(standingLocal(target) === "directory" ? target : parent, `.svc-copy-${randomBytes(6).toString("hex")}`);
  mkdirSync(bytesOfText(stage), { mode: 0o700 });
  const arrived = openPlan();
  try {
    await receive(envd, path, stage, arrived, options, request, progress, bytes);
    // Conflicts are checked again, since the download may have taken an hour.
    settleConflicts(conflictsWith(arrived, target, force), force);
    placeTree(arrived, stage, target, force);
    progress.close(true);
  } finally {
    progress.close(false);
    removeTree(arrived, stage);
  }
}

async function receive(
  envd: EnvdClient,
  path: string,
  stage: string,
  arrived: CopyPlan,
  options: CopyOptions,
  request: Request,
  progress: Progress,
  totalBytes: number,
): Promise<void> {
  const body = await envd.readTree(path, request).catch((error) => missing(error, path));
  const tar = unpackTree(stage, request.signal);
  let counted = 0;
  const archive = checkedArchive(body as AsyncIterable<Buffer>, (entry) => {
    const isKept = adds(arrived, entry, path, options);
    // The sandbox keeps running during the copy, so an entry that was acceptable in the plan may no longer be.
    if (arrived.refused.length > 0) settleRefused(arrived);
    return isKept;
  });
  const passing = async function* () {
    for await (const chunk of archive) {
      const share = Math.min(chunk.length, totalBytes - counted);
      counted += share;
      progress.add(share);
      yield chunk;
    }
  };
  try {
    await pipeline(Readable.from(passing(), { objectMode: false, highWaterMark: 1024 * 1024 }), tar.stdin, { signal: request.signal });
  } catch (error) {
    // On a full disk tar ends and stops reading; its own message says why.
    if ((error as NodeJS.ErrnoException).code === "EPIPE") await tar.ended();
    tar.stdin.destroy();
    await tar.ended().catch(() => {});
    throw error;
  }
  for (const line of (await tar.ended()).split("\n")) if (line !== "") remark(line);
  progress.add(totalBytes - counted);
}

function adds(plan: CopyPlan, entry: ArchiveEntry, root: string, options: CopyOptions): boolean {
  const { kind, path, mode, target, sizeBytes } = entry;
  const shown = join(root, path);
  if (kind === "special") return addEntry(plan, { path, type: "special" }, shown, { ...options, mustStayInside: true });
  const type = kind === "hard link" ? "file" : kind;
  const item = { path, type, mode, sizeBytes: type === "file" ? sizeBytes : 0, ...(type === "link" ? { target } : {}) };
  return addEntry(plan, item, shown, { ...options, mustStayInside: true });
}

function missing(error: unknown, path: string): never {
  if (error instanceof Failure && error.name === "FILE_NOT_FOUND") fail("FILE_NOT_FOUND", `there is no ${shownText(path)} in the sandbox`);
  throw error;
}

async function downloadToStdout(envd: EnvdClient, remote: string, request: RequestOptions): Promise<void> {
  const { body } = await envd.download(await absolute(envd, remote, request), request);
  for await (const chunk of body as AsyncIterable<Buffer>) await write(process.stdout, chunk);
}

/** Creates one level only: a mistyped path must not become a tree of directories. */
function makeDirectory(path: string): void {
  try {
    mkdirSync(bytesOfText(path));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // ENOENT: the caller reports the missing parent.
    if (code !== "ENOENT" && code !== "EEXIST") throw error;
  }
}

/** Follows the rules of cp: into a directory (also through a link to one) under the source's name, else to the path itself. */
function targetOf(remote: string, path: string, local: string | undefined): string {
  const name = basename(path);
  if (/(^|\/)\.$/.test(remote)) return local === undefined ? "." : isDirectory(local) ? realPath(local) : local;
  if (local === undefined) return name;
  return local.endsWith("/") || isDirectory(local) ? join(local, name) : local;
}
