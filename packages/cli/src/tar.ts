// GNU tar reads and writes trees on this machine: links, holes, attributes and names of any bytes, for which Node has no calls.
import { type ChildProcessByStdio, spawn, spawnSync } from "node:child_process";
import { closeSync, constants, openSync } from "node:fs";
import type { Readable, Writable } from "node:stream";
import { bytesOfText } from "@svc/contract/byte-text.ts";
import { Failure } from "@svc/contract/failures.ts";
import { ForeseenError } from "./complain.ts";

/** Kept of what tar says. */
const MAX_WORDS = 4000;
const EXIT_DIFFERS = 1;

export type Tar = {
  readonly stdin: Writable;
  readonly stdout: Readable;
  /** Waits for its end and gives what it remarked. @throws when it failed, with its own words. */
  ended(): Promise<string>;
};

/** Reads `names` (as the kernel spells them, relative) in `directory`. */
export function packTree(directory: string, names: readonly string[], signal: AbortSignal): Tar {
  const tar = run(directory, ["--create", "--format=pax", "--sparse", "--no-recursion", "--null", "--verbatim-files-from", "--files-from=-"], signal);
  tar.stdin.end(Buffer.concat(names.flatMap((name) => [bytesOfText(name), Buffer.of(0)])));
  return tar;
}

/** Writes into `directory`, which is empty and this process's own. */
export function unpackTree(directory: string, signal: AbortSignal): Tar {
  return run(directory, ["--extract", "--same-permissions", "--no-same-owner", "--delay-directory-restore", "--warning=no-timestamp"], signal);
}

function run(directory: string, args: readonly string[], signal: AbortSignal): Tar {
  if (!/GNU tar/.test(spawnSync("tar", ["--version"], { encoding: "utf8" }).stdout ?? ""))
    throw new ForeseenError("svc copies files by GNU tar, which this machine lacks: install the package tar");
  // By descriptor: a command line of Node takes no name that is not UTF-8.
  const at = openSync(bytesOfText(directory), constants.O_RDONLY | constants.O_DIRECTORY);
  let child: ChildProcessByStdio<Writable, Readable, Readable>;
  try {
    // Without a locale names stay the bytes they are; TAR_OPTIONS of the user would mean other archives.
    const env = { ...process.env, LC_ALL: "C", TAR_OPTIONS: "" };
    const all = ["--directory=/proc/self/fd/3", "--xattrs", "--xattrs-include=user.*", ...args];
    child = spawn("tar", all, { stdio: ["pipe", "pipe", "pipe", at], env, signal }) as unknown as typeof child;
  } finally {
    closeSync(at);
  }
  let words = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    words = (words + text).slice(0, MAX_WORDS);
  });
  // It may end before it has read all: its exit code says why.
  child.stdin.on("error", () => {});
  const over = new Promise<string>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code, ending) => {
      const said = words.replaceAll("tar: ", "").trim();
      // A file that grows or is touched meanwhile is copied as long as it was; one that became shorter is not.
      const isHarmless = code === EXIT_DIFFERS && said.split("\n").every((line) => line.endsWith("file changed as we read it"));
      if (code === 0 || isHarmless) resolve(code === 0 ? said : "");
      else reject(new Failure("INTERNAL", `nothing copied: ${said || `tar was ended by ${ending}`}`));
    });
  });
  over.catch(() => {});
  return { stdin: child.stdin, stdout: child.stdout, ended: () => over };
}
