// `svc download`: a file or a directory out of a sandbox; each file under a temporary name first, then renamed.
import { createWriteStream, realpathSync, statSync } from "node:fs";
import { mkdir, rename, rm } from "node:fs/promises";
import { basename, dirname, join, posix, resolve } from "node:path";
import { Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { EnvdClient, RequestOptions } from "@svc/contract/envd.ts";
import { fail } from "@svc/contract/failures.ts";
import { withClient } from "./access.ts";
import { type CopyOptions, copyFiles, interruptible, isFree, settleConflicts, settleRefused, temporaryName } from "./copy.ts";
import { standingLocal } from "./local-path.ts";
import { awakeSandbox } from "./open-envd.ts";
import { absolute, statOrNothing, walkRemote } from "./remote-path.ts";
import { write } from "./write.ts";

export function download(sandboxID: string, remote: string, local: string | undefined, options: CopyOptions): Promise<number> {
  const { url, user } = options;
  return withClient(url === undefined ? {} : { url }, async (client) => {
    const envd = client.envd(await awakeSandbox(client, sandboxID));
    return await interruptible((signal) =>
      local === "-" ? downloadToStdout(envd, remote, { user, signal }) : downloadPath(envd, remote, local, options, { user, signal }),
    );
  });
}

async function downloadPath(
  envd: EnvdClient,
  remote: string,
  local: string | undefined,
  { force, skipLinks, quiet }: CopyOptions,
  request: RequestOptions & { signal: AbortSignal },
): Promise<void> {
  const path = await absolute(envd, remote, request);
  const root = (await statOrNothing(envd, path, request)) ?? fail("FILE_NOT_FOUND", `there is no ${path} in the sandbox`);
  const plan = await walkRemote(envd, root, request);
  settleRefused(plan, skipLinks === true);
  if (plan.items.length === 0) return;
  const target = targetOf(remote, path, local);
  const at = (relative: string) => join(target, relative);
  settleConflicts(plan, (relative) => standingLocal(at(relative)), at, force === true);
  const parent = dirname(resolve(target));
  if (target !== local && local?.endsWith("/") === true) await makeDirectory(parent);
  if (!isDirectory(parent)) fail("FILE_NOT_FOUND", `nothing copied: there is no directory ${parent} here; create it first (mkdir -p), or check the path`);
  for (const { path: relative, type } of plan.items) if (type === "directory") await makeDirectory(at(relative));
  await copyFiles(plan, `download to ${target}`, quiet === true, request.signal, async (item, progress, signal) => {
    const temporary = temporaryName(resolve(at(item.path)));
    try {
      const { body } = await envd.download(posix.join(root.path, item.path), { ...request, signal });
      const counter = new Transform({
        transform(chunk: Buffer, _encoding, done) {
          progress.add(chunk.length);
          done(null, chunk);
        },
      });
      // The umask applies; set-user-ID bits of a sandbox's files mean nothing here.
      await pipeline(body, counter, createWriteStream(temporary, { flags: "wx", mode: item.mode & 0o777 }), { signal });
      // Looked at again: the copy may have taken an hour, and a rename replaces anything but a directory.
      if (!isFree(standingLocal(at(item.path)), "file", force === true))
        fail("FILE_EXISTS", `${at(item.path)} was created by somebody else during the copy; it was not replaced`);
      await rename(temporary, at(item.path));
    } catch (error) {
      await rm(temporary, { force: true });
      throw error;
    }
  });
}

async function downloadToStdout(envd: EnvdClient, remote: string, request: RequestOptions): Promise<void> {
  const { body } = await envd.download(await absolute(envd, remote, request), request);
  for await (const chunk of body as AsyncIterable<Buffer>) await write(process.stdout, chunk);
}

/** One level: a path that was mistyped must not become a tree of directories. */
async function makeDirectory(path: string): Promise<void> {
  await mkdir(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return; // the caller names the missing parent
    if (error.code !== "EEXIST") throw error;
  });
}

/** As cp decides: into a directory (also through a link to one) under the source's name, else to the path itself. */
function targetOf(remote: string, path: string, local: string | undefined): string {
  const name = basename(path);
  if (/(^|\/)\.$/.test(remote)) return local === undefined ? "." : isDirectory(local) ? realpathSync(local) : local;
  if (local === undefined) return name;
  return local.endsWith("/") || isDirectory(local) ? join(local, name) : local;
}

function isDirectory(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}
