// `svc upload`: a file, a directory or stdin into a sandbox; each file under a temporary name first, then renamed.
import { createReadStream, statSync } from "node:fs";
import { basename, join, posix, resolve } from "node:path";
import { type Readable, Transform } from "node:stream";
import type { EnvdClient, RequestOptions } from "@svc/contract/envd.ts";
import { asFailure, fail } from "@svc/contract/failures.ts";
import { withClient } from "./access.ts";
import { UsageError } from "./complain.ts";
import { type CopyOptions, copyFiles, interruptible, settleConflicts, settleRefused, temporaryName } from "./copy.ts";
import { walkLocal } from "./local-path.ts";
import { awakeSandbox } from "./open-envd.ts";
import { openProgress, type Progress } from "./progress.ts";
import { absolute, standingOf, standingRemote, statOrNothing } from "./remote-path.ts";

export function upload(sandboxID: string, local: string, remote: string | undefined, options: CopyOptions): Promise<number> {
  const { url, user } = options;
  return withClient(url === undefined ? {} : { url }, async (client) => {
    const envd = client.envd(await awakeSandbox(client, sandboxID));
    return await interruptible((signal) =>
      local === "-" ? uploadStdin(envd, remote, options, { user, signal }) : uploadPath(envd, local, remote, options, { user, signal }),
    );
  });
}

async function uploadPath(
  envd: EnvdClient,
  local: string,
  remote: string | undefined,
  { force, skipLinks, quiet }: CopyOptions,
  request: RequestOptions & { signal: AbortSignal },
): Promise<void> {
  const plan = await walkLocal(local).catch((error: NodeJS.ErrnoException) =>
    error.code === "ENOENT" ? fail("FILE_NOT_FOUND", `there is no ${error.path ?? local} here`) : Promise.reject(error),
  );
  settleRefused(plan, skipLinks === true);
  if (plan.items.length === 0) return;
  const target = await targetIn(envd, local, remote, request);
  const standing = await standingRemote(envd, target, plan, request);
  const at = (path: string) => posix.join(target, path);
  settleConflicts(plan, (path) => standing.get(path), at, force === true);
  for (const { path, type } of plan.items) {
    if (type === "directory" && standing.get(path) === undefined) await makeDirectory(envd, at(path), request);
  }
  await copyFiles(plan, `upload to ${target}`, quiet === true, request.signal, async ({ path, mode, sizeBytes }, progress, signal) => {
    const source = join(local, path);
    // No more than was announced, should the file grow meanwhile; an empty range has no end.
    const body = sizeBytes === 0 ? Buffer.alloc(0) : createReadStream(source, { end: sizeBytes - 1, highWaterMark: 256 * 1024 });
    await writeWhole(envd, at(path), body, { mode, sizeBytes, source }, progress, { ...request, signal });
  });
}

async function uploadStdin(
  envd: EnvdClient,
  remote: string | undefined,
  { force, quiet }: CopyOptions,
  request: RequestOptions & { signal: AbortSignal },
): Promise<void> {
  if (remote === undefined || remote.endsWith("/")) throw new UsageError("upload of stdin: expected the path of a file in the sandbox");
  const target = await absolute(envd, remote, request);
  const plan = { items: [{ path: "", type: "file" as const, sizeBytes: 0, mode: 0o644 }], refused: [] };
  const there = standingOf(await statOrNothing(envd, target, request));
  settleConflicts(
    plan,
    () => there,
    () => target,
    force === true,
  );
  const progress = openProgress(`upload to ${target}`, undefined, 1, quiet === true);
  try {
    await writeWhole(envd, target, process.stdin, { mode: 0o644, sizeBytes: undefined, source: "stdin" }, progress, request);
    progress.close(true);
  } finally {
    progress.close(false);
    process.stdin.destroy();
  }
}

type Source = { mode: number; sizeBytes: number | undefined; source: string };

async function writeWhole(
  envd: EnvdClient,
  target: string,
  body: Readable | Buffer,
  { mode, sizeBytes, source }: Source,
  progress: Progress,
  request: RequestOptions,
): Promise<void> {
  const temporary = temporaryName(target);
  try {
    await envd.upload(temporary, Buffer.isBuffer(body) ? body : body.pipe(counted(progress, body, sizeBytes, source)), { ...request, sizeBytes });
    if ((mode & 0o111) !== 0) await makeExecutable(envd, temporary, mode, request);
    await envd.move(temporary, target, request);
  } catch (error) {
    if (!Buffer.isBuffer(body)) body.destroy();
    const { signal: _, ...unsignalled } = request;
    await envd.remove(temporary, unsignalled).catch(() => {});
    throw error;
  }
}

/** Counts what passes, and fails where a file turns out shorter than it was: half a file must not take the name. */
function counted(progress: Progress, body: Readable, sizeBytes: number | undefined, source: string): Transform {
  let bytes = 0;
  const counter = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length;
      progress.add(chunk.length);
      done(null, chunk);
    },
    flush(done) {
      done(sizeBytes === undefined || bytes === sizeBytes ? null : new Error(`${source} became shorter while it was read`));
    },
  });
  body.once("error", (error) => counter.destroy(error));
  return counter;
}

/** envd's protocol carries no mode. */
async function makeExecutable(envd: EnvdClient, path: string, mode: number, request: RequestOptions): Promise<void> {
  for await (const event of envd.start({ cmd: "chmod", args: [mode.toString(8), "--", path], stdin: false, ...request })) {
    if (event.type === "end" && event.exitCode !== 0) fail("INTERNAL", `${path} cannot be made executable: chmod ended with ${event.exitCode}`);
  }
}

async function makeDirectory(envd: EnvdClient, path: string, request: RequestOptions): Promise<void> {
  try {
    await envd.makeDir(path, request);
  } catch (error) {
    if (asFailure(error).name !== "FILE_EXISTS") throw error;
  }
}

/** As cp decides: into a directory under the source's name, else to the path itself. */
async function targetIn(envd: EnvdClient, local: string, remote: string | undefined, request: RequestOptions): Promise<string> {
  const name = basename(resolve(local));
  const isContents = /(^|\/)\.$/.test(local) && statSync(local).isDirectory();
  const path = await absolute(envd, remote ?? (isContents ? "." : "./"), request);
  if (isContents) return path.length > 1 ? path.replace(/\/$/, "") : path;
  const intoDirectory = path.endsWith("/") || standingOf(await statOrNothing(envd, path, request)) === "directory";
  return intoDirectory ? posix.join(path, name) : path;
}
