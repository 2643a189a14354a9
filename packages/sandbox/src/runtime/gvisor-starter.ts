// Keeps a waiting runsc next to each precreated sandbox, which receives the rest of its command later. A start in the precreated sandbox then
// forks nothing, does not exec a program of 80 MB, and enters no control group, where the kernel waits for all its RCU readers (about 10 ms in
// version 1).
import { constants } from "node:fs";
import { open, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { RunResult, Spawner } from "@svc/kit/spawn.ts";

// DIRECTORY/starter   a named pipe while a runsc waits: one argument per line, then END_OF_ARGUMENTS

const PIPE = "starter";
const END_OF_ARGUMENTS = ".";
/** The longest delay that a timer accepts, since the waiting runsc ends with its precreated sandbox. */
const WAIT_MS = 2 ** 31 - 1;
/** Each waiting runsc counts as one of the programs that the spawn helper may run at once. */
const MAX_WAITING = 128;
/**
 * runsc itself waits for the arguments, since its start-up is then over. If the end mark is missing, for example because the node ended, it runs
 * nothing.
 */
const script = [
  'while [ "$1" != -- ]; do echo $$ >"$1" || exit 97; shift; done; shift',
  'pipe=$1; shift; mkfifo -m 600 -- "$pipe" && exec "$@" words-from "$pipe"',
].join("\n");

type Owner = { readonly runtimeID: string; readonly directory: string };

export type Starters = {
  /** Starts a runsc that soon waits for `finish`, until it or its precreated sandbox ends. `argv` is the known part of its command. */
  wait(owner: Owner, entrances: readonly string[], argv: readonly string[], outputFile: string): void;
  /** Runs the command with the remaining arguments to its end; returns undefined if no runsc waits. @throws TIMED_OUT. */
  finish(owner: Owner, args: readonly string[], timeoutMs: number): Promise<RunResult | undefined>;
};

export function openStarters(spawner: Spawner): Starters {
  /** Keyed by the precreated sandbox's id. */
  const waiting = new Map<string, Promise<RunResult>>();

  return {
    wait({ runtimeID, directory }, entrances, argv, outputFile) {
      if (waiting.size >= MAX_WAITING) return;
      const command = ["/bin/sh", "-c", script, "sh", ...entrances, "--", join(directory, PIPE), ...argv];
      const ended = spawner.run(command, { outputFile, timeoutMs: WAIT_MS, cwd: directory });
      const forget = () => void waiting.delete(runtimeID);
      waiting.set(runtimeID, ended);
      ended.then(forget, forget);
    },
    async finish({ runtimeID, directory }, args, timeoutMs) {
      const ended = waiting.get(runtimeID);
      if (ended === undefined || args.some((arg) => arg === END_OF_ARGUMENTS || arg.includes("\n"))) return undefined;
      waiting.delete(runtimeID);
      const path = join(directory, PIPE);
      // The open is refused unless a reader has opened the pipe already.
      const pipe = await open(path, constants.O_WRONLY | constants.O_NONBLOCK).catch(() => undefined);
      if (pipe === undefined) {
        await dismiss(path);
        return undefined;
      }
      try {
        await pipe.writeFile([...args, END_OF_ARGUMENTS, ""].join("\n"));
      } catch {
        // The runsc ended meanwhile, without having read the end mark.
        return undefined;
      } finally {
        await pipe.close();
      }
      let timer: NodeJS.Timeout | undefined;
      const late = new Promise<undefined>((resolve) => {
        timer = setTimeout(resolve, timeoutMs, undefined);
      });
      const result = await Promise.race([ended, late]).finally(() => clearTimeout(timer));
      await rm(path, { force: true });
      return result ?? fail("TIMED_OUT", `runsc ${args[0]}: not finished within ${timeoutMs} ms`);
    },
  };
}

/** Makes a runsc that has not opened its pipe yet end: it cannot create the pipe, finds it gone, or reads its end. */
async function dismiss(path: string): Promise<void> {
  const isFirst = await writeFile(path, "", { flag: "wx" }).then(
    () => true,
    () => false,
  );
  if (isFirst) return;
  // Opening for reading and writing keeps a runsc that opens the pipe before its removal from waiting for a writer.
  const pipe = await open(path, constants.O_RDWR | constants.O_NONBLOCK).catch(() => undefined);
  await rm(path, { force: true });
  await pipe?.close();
}
