// `svc upload`: copies a file, a directory or stdin into a staging folder in a sandbox, then renames it into place as a whole.
import { basename, dirname, posix, resolve } from "node:path";
import { Readable } from "node:stream";
import { bytesOfText } from "@svc/contract/byte-text.ts";
import type { EnvdClient, RequestOptions, TreeAnswer } from "@svc/contract/envd.ts";
import { fail } from "@svc/contract/failures.ts";
import { withClient } from "../access/access.ts";
import { awakeSandbox } from "../access/open-envd.ts";
import { remark, UsageError } from "../output/complain.ts";
import { openProgress } from "../output/progress.ts";
import { type CopyOptions, type CopyPlan, interruptible, olderAgent, settleConflicts, settleRefused, sizesOf } from "./copy.ts";
import { isDirectory, realPath, walkLocal } from "./local-path.ts";
import { absolute } from "./remote-path.ts";
import { packTree } from "./tar.ts";

type Request = RequestOptions & { signal: AbortSignal };

export function upload(sandboxID: string, local: string, remote: string | undefined, options: CopyOptions): Promise<number> {
  const { url, user } = options;
  return withClient(url === undefined ? {} : { url }, async (client) => {
    const envd = client.envd(await awakeSandbox(client, sandboxID));
    return await interruptible((signal) =>
      (local === "-" ? uploadStdin(envd, remote, options, { user, signal }) : uploadPath(envd, local, remote, options, { user, signal })).catch((error) => {
        throw olderAgent(error, sandboxID);
      }),
    );
  });
}

async function uploadPath(envd: EnvdClient, local: string, remote: string | undefined, options: CopyOptions, request: Request): Promise<void> {
  // As with cp, a link that is named itself is followed; links below it are copied.
  const root = rootAt(local);
  // Links that lead out are allowed, since in a sandbox they can lead only to the sandbox's own files.
  const plan = walkLocal(root, { ...options, mustStayInside: false });
  settleRefused(plan);
  if (plan.items.length === 0) return;
  const target = await targetIn(envd, local, remote, request);
  const force = options.force === true;
  const { conflicts } = await envd.checkTree(target, planOf(plan), { ...request, force });
  settleConflicts(conflicts, force);
  const { files, bytes } = sizesOf(plan);
  const progress = openProgress(`upload to ${target}`, bytes, files, options.quiet === true);
  try {
    const isTree = plan.items[0]?.type === "directory";
    const tar = packTree(
      isTree ? root : dirname(root),
      plan.items.map(({ path }) => (isTree ? `./${path}` : `./${basename(root)}`)),
      request.signal,
    );
    let counted = 0;
    const body = Readable.from(
      (async function* () {
        for await (const chunk of tar.stdout as AsyncIterable<Buffer>) {
          // An archive has headers, which are not the user's bytes, and lacks holes, which are; so the count is only approximate.
          const share = Math.min(chunk.length, bytes - counted);
          counted += share;
          progress.add(share);
          yield chunk;
        }
        // The request must not end before tar has succeeded: a file that could not be read must not arrive truncated.
        for (const line of (await tar.ended()).split("\n")) if (line !== "") remark(line);
        progress.add(bytes - counted);
      })(),
      { objectMode: false, highWaterMark: 1024 * 1024 },
    );
    settle(await envd.writeTree(target, body, { ...request, force }), force);
    progress.close(true);
  } finally {
    progress.close(false);
  }
}

function rootAt(local: string): string {
  try {
    return realPath(resolve(local));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    return fail("FILE_NOT_FOUND", `there is no ${local} here`);
  }
}

const LETTERS = { file: "f", directory: "d", link: "l" } as const;

function planOf(plan: CopyPlan): Buffer {
  return Buffer.concat(plan.items.flatMap(({ path, type }) => [bytesOfText(`${LETTERS[type]}${path === "" ? "." : path}`), Buffer.of(0)]));
}

function settle({ conflicts, withoutAttributes }: TreeAnswer, force: boolean): void {
  settleConflicts(conflicts, force);
  if (withoutAttributes > 0) remark(`${withoutAttributes} files lost their extended attributes: the file system there has none`);
}

async function uploadStdin(
  envd: EnvdClient,
  remote: string | undefined,
  { force = false, quiet }: { force?: boolean; quiet?: true },
  request: Request,
): Promise<void> {
  if (remote === undefined || remote.endsWith("/")) throw new UsageError("upload of stdin: expected the path of a file in the sandbox");
  const target = await absolute(envd, remote, request);
  const { conflicts } = await envd.checkTree(target, Buffer.from("f.\0"), { ...request, force });
  settleConflicts(conflicts, force);
  const progress = openProgress(`upload to ${target}`, undefined, 1, quiet === true);
  try {
    const body = Readable.from(
      (async function* () {
        for await (const chunk of process.stdin as AsyncIterable<Buffer>) {
          progress.add(chunk.length);
          yield chunk;
        }
      })(),
      { objectMode: false },
    );
    settle(await envd.writeTree(target, body, { ...request, force, isContent: true }), force);
    progress.close(true);
  } finally {
    progress.close(false);
    process.stdin.destroy();
  }
}

/** Follows the rules of cp: into a directory under the source's name, else to the path itself. */
async function targetIn(envd: EnvdClient, local: string, remote: string | undefined, request: Request): Promise<string> {
  const name = basename(resolve(local));
  const isContents = /(^|\/)\.$/.test(local) && isDirectory(local);
  const path = await absolute(envd, remote ?? (isContents ? "." : "./"), request);
  if (isContents) return path.length > 1 ? path.replace(/\/$/, "") : path;
  const intoDirectory = path.endsWith("/") || (await envd.checkTree(path, Buffer.alloc(0), request)).standing === "directory";
  return intoDirectory ? posix.join(path, name) : path;
}
