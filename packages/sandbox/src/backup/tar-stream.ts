// GNU tar as a stream: a folder to bytes and back, with holes, hard links, owners, times in nanoseconds and extended attributes.
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import type { Readable, Writable } from "node:stream";
import { diskFull, Failure, isDiskFull } from "@svc/contract/failures.ts";
import { programEnvironment } from "@svc/kit/spawn.ts";

const keeping = ["--sparse", "--format=posix", "--xattrs", "--xattrs-include=*", "--numeric-owner"];
/** Its exit code when a file changed while it was read: only audit logs and files of volumes can. */
const CHANGED = 1;
const MAX_SAID = 4_000;

/** Reads a folder. @throws INTERNAL with what tar said, at the end of the stream. */
export async function* tarOf(folder: string): AsyncGenerator<Buffer> {
  const tar = spawn("tar", [...keeping, "--sort=name", "--warning=no-file-ignored", "-C", folder, "-cf", "-", "."], {
    stdio: ["ignore", "pipe", "pipe"],
    env: programEnvironment(),
  });
  const { said, over } = watched(tar);
  try {
    for await (const chunk of tar.stdout) yield chunk as Buffer;
    const code = await over;
    if (code !== 0 && code !== CHANGED) throw failed(`${folder} could not be read`, code, said());
  } finally {
    tar.kill("SIGKILL");
  }
}

/** Writes a stream's files into a folder. @throws DISK_FULL, or INTERNAL with what tar said. */
export async function untar(folder: string, stream: AsyncIterable<Buffer>): Promise<void> {
  const tar = spawn("tar", [...keeping, "-p", ...(process.getuid?.() === 0 ? ["--same-owner"] : []), "-C", folder, "-xf", "-"], {
    stdio: ["pipe", "ignore", "pipe"],
    env: programEnvironment(),
  });
  const { said, over } = watched(tar);
  let isClosed = false;
  // tar says on stderr why it reads no further.
  tar.stdin.on("error", () => {
    isClosed = true;
  });
  try {
    for await (const chunk of stream) {
      if (isClosed || tar.exitCode !== null) break;
      if (!tar.stdin.write(chunk)) await Promise.race([once(tar.stdin, "drain"), over]).catch(() => undefined);
    }
    tar.stdin.end();
    const code = await over;
    if (code !== 0) throw failed(`the files could not be written to ${folder}`, code, said());
  } finally {
    tar.kill("SIGKILL");
  }
}

function watched(tar: ChildProcessByStdio<Writable | null, Readable | null, Readable>) {
  let text = "";
  tar.stderr.setEncoding("utf8").on("data", (part: string) => {
    text = (text + part).slice(-MAX_SAID);
  });
  const over = new Promise<number | null>((resolve, reject) => {
    tar.once("error", (cause) => reject(new Failure("HOST_UNSUITABLE", `tar could not be started: ${cause.message}; install GNU tar`, { cause })));
    tar.once("close", resolve);
  });
  over.catch(() => undefined);
  return { said: () => text.trim(), over };
}

function failed(what: string, code: number | null, said: string): Failure {
  const error = new Error(said);
  if (isDiskFull(error)) return diskFull(error);
  return new Failure("INTERNAL", `${what}: tar ended with ${code ?? "a signal"}: ${said.split("\n").slice(-3).join("; ")}`);
}
