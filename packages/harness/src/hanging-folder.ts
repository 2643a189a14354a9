// A folder on a test's file system that stops answering on request, including reads, and answers again later.
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { makeHome, removeHome } from "./home.ts";
import { needs } from "./needs.ts";

/** Test options for `test(…)`. */
export const needsHangingFolder = needs("root", "python3-fusepy", "/dev/fuse");

const DEBIANS_PYTHON = "/usr/bin/python3";
const program = fileURLToPath(new URL("hanging-folder.py", import.meta.url));

export type HangingFolder = {
  readonly path: string;
  /** The real location of its files. */
  readonly below: string;
  /** Once this resolves, every access waits until `go` or the end of the block; a waiting process cannot be killed. */
  hang(): Promise<AsyncDisposable>;
  /** Refuses every access with EACCES. */
  refuse(): Promise<AsyncDisposable>;
  /** Ends it, and returns how many kernel calls waited or were refused. */
  go(): Promise<number>;
} & AsyncDisposable;

export async function startHangingFolder(): Promise<HangingFolder> {
  const parent = makeHome();
  const [below, path] = [join(parent, "below"), join(parent, "folder")];
  mkdirSync(below);
  mkdirSync(path);
  const child = spawn(DEBIANS_PYTHON, [program, below, path], { stdio: ["pipe", "pipe", "inherit"] });
  const onExit = () => void child.kill("SIGKILL");
  process.once("exit", onExit);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const said = async () => {
    const { value, done } = await lines.next();
    if (done === true) throw new Error("the file system ended");
    return value;
  };
  const tell = (word: string) => {
    child.stdin.write(`${word}\n`);
    return said();
  };
  const go = async () => Number((await tell("go")).split(" ")[1]);
  const trouble = async (word: string) => {
    await tell(word);
    return { [Symbol.asyncDispose]: async () => void (await go()) };
  };
  await said();
  return {
    path,
    below,
    hang: () => trouble("hang"),
    refuse: () => trouble("refuse"),
    go,
    async [Symbol.asyncDispose]() {
      const ended = new Promise((resolve) => child.once("exit", resolve));
      child.stdin.end();
      await ended;
      process.off("exit", onExit);
      execFileSync("umount", ["--lazy", path]);
      removeHome(parent);
    },
  };
}
