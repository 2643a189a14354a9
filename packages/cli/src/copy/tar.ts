// Runs GNU tar to read and write trees on this machine: Node has no calls for holes, attributes and names that are not UTF-8.
import { type ChildProcessByStdio, spawn, spawnSync } from "node:child_process";
import { closeSync, constants, openSync } from "node:fs";
import type { Readable, Writable } from "node:stream";
import { bytesOfText } from "@svc/contract/byte-text.ts";
import { Failure } from "@svc/contract/failures.ts";
import { ForeseenError } from "../output/complain.ts";

/** The limit for stored output of tar. */
const MAX_OUTPUT_CHARS = 4000;
const EXIT_DIFFERS = 1;

export type Tar = {
  readonly stdin: Writable;
  readonly stdout: Readable;
  /** Waits for its end and returns its warnings. @throws with tar's own message if it failed. */
  ended(): Promise<string>;
};

/** Packs `names` (as the kernel spells them, relative) from `directory`. */
export function packTree(directory: string, names: readonly string[], signal: AbortSignal): Tar {
  const tar = run(directory, ["--create", "--format=pax", "--sparse", "--no-recursion", "--null", "--verbatim-files-from", "--files-from=-"], signal);
  tar.stdin.end(Buffer.concat(names.flatMap((name) => [bytesOfText(name), Buffer.of(0)])));
  return tar;
}

/** Unpacks into `directory`, which is empty and used by this process only. */
export function unpackTree(directory: string, signal: AbortSignal): Tar {
  return run(directory, ["--extract", "--same-permissions", "--no-same-owner", "--delay-directory-restore", "--warning=no-timestamp"], signal);
}

function run(directory: string, args: readonly string[], signal: AbortSignal): Tar {
  if (!/GNU tar/.test(spawnSync("tar", ["--version"], { encoding: "utf8" }).stdout ?? ""))
    throw new ForeseenError("svc copies files by GNU tar, which this machine lacks: install the package tar");
  // The directory is passed as a descriptor, since Node cannot pass a name that is not UTF-8 on a command line.
  const at = openSync(bytesOfText(directory), constants.O_RDONLY | constants.O_DIRECTORY);
  let child: ChildProcessByStdio<Writable, Readable, Readable>;
  try {
    // In the C locale names stay unchanged bytes; TAR_OPTIONS of the user could change the archive format.
    const env = { ...process.env, LC_ALL: "C", TAR_OPTIONS: "" };
    const all = ["--directory=/proc/self/fd/3", "--xattrs", "--xattrs-include=user.*", ...args];
    child = spawn("tar", all, { stdio: ["pipe", "pipe", "pipe", at], env, signal }) as unknown as typeof child;
  } finally {
    closeSync(at);
  }
  let output = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    output = (output + text).slice(0, MAX_OUTPUT_CHARS);
  });
  // tar may end before it has read everything; its exit code says why.
  child.stdin.on("error", () => {});
  const over = new Promise<string>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code, ending) => {
      const said = output.replaceAll("tar: ", "").trim();
      // A file that grows or is touched meanwhile is copied with its initial size; one that became shorter is an error.
      const isHarmless = code === EXIT_DIFFERS && said.split("\n").every((line) => line.endsWith("file changed as we read it"));
      if (code === 0 || isHarmless) resolve(code === 0 ? said : "");
      else reject(new Failure("INTERNAL", `nothing copied: ${said || `tar was ended by ${ending}`}`));
    });
  });
  over.catch(() => {});
  return { stdin: child.stdin, stdout: child.stdout, ended: () => over };
}
