// `svc download`: a file or a directory out of a sandbox; each file under a temporary name first, then renamed.
import { createWriteStream } from "node:fs";
import { mkdir, rename, rm } from "node:fs/promises";
import { basename, dirname, join, posix, resolve } from "node:path";
import { Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { EnvdClient, RequestOptions } from "@svc/contract/envd.ts";
import { fail } from "@svc/contract/failures.ts";
import { withClient } from "./access.ts";
import { type CopyOptions, copyFiles, interruptible, settleConflicts, settleRefused, temporaryName } from "./copy.ts";
import { standingLocal } from "./local-path.ts";
import { absolute, statOrNothing, walkRemote } from "./remote-path.ts";
import { write } from "./write.ts";

export function download(sandboxID: string, remote: string, local: string | undefined, options: CopyOptions): Promise<number> {
  const { url, user } = options;
  return withClient(url === undefined ? {} : { url }, async (client) => {
    const envd = client.envd(await client.get(sandboxID));
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
  await mkdir(dirname(resolve(target)), { recursive: true });
  for (const { path: relative, type } of plan.items) if (type === "directory") await mkdir(at(relative), { recursive: true });
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

/** As cp decides: into a directory under the source's name, else to the path itself. */
function targetOf(remote: string, path: string, local: string | undefined): string {
  const isContents = /(^|\/)\.$/.test(remote);
  const name = basename(path);
  const target = local ?? (isContents ? "." : name);
  if (isContents || local === undefined) return target;
  return target.endsWith("/") || standingLocal(target) === "directory" ? join(target, name) : target;
}
