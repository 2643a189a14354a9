// A runsc that waits beside each precreated sandbox for the rest of its command: a start that goes on in the precreated sandbox forks nothing, starts no program
// of 80 MB, and enters no control group, for which the kernel waits for all its readers (some 10 ms in version 1).
import { constants } from "node:fs";
import { open, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { RunResult, Spawner } from "@svc/kit/spawn.ts";

// DIRECTORY/starter   a named pipe, while one waits: words, a line each, and END_OF_WORDS

const PIPE = "starter";
const END_OF_WORDS = ".";
/** As long as a timer may take: it is ended with its precreated sandbox. */
const WAIT_MS = 2 ** 31 - 1;
/** Each is one of the programs that the spawn helper may run at once. */
const MAX_WAITING = 128;
/** runsc itself waits for the words: its start is over then. Without the last one, say because the node ended, it runs nothing. */
const script = [
  'while [ "$1" != -- ]; do echo $$ >"$1" || exit 97; shift; done; shift',
  'pipe=$1; shift; mkfifo -m 600 -- "$pipe" && exec "$@" words-from "$pipe"',
].join("\n");

type Of = { readonly runtimeID: string; readonly directory: string };

export type Starters = {
  /** One waits for `goOn` from soon on, until it or its precreated sandbox ends. `argv`: what is known of its command. */
  wait(of: Of, entrances: readonly string[], argv: readonly string[], outputFile: string): void;
  /** Runs the command with further words to its end; undefined where none waits. @throws TIMED_OUT. */
  goOn(of: Of, words: readonly string[], timeoutMs: number): Promise<RunResult | undefined>;
};

export function openStarters(spawner: Spawner): Starters {
  /** By the precreated sandbox's id. */
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
    async goOn({ runtimeID, directory }, words, timeoutMs) {
      const ended = waiting.get(runtimeID);
      if (ended === undefined || words.some((word) => word === END_OF_WORDS || word.includes("\n"))) return undefined;
      waiting.delete(runtimeID);
      const path = join(directory, PIPE);
      // Refused unless somebody reads already.
      const pipe = await open(path, constants.O_WRONLY | constants.O_NONBLOCK).catch(() => undefined);
      if (pipe === undefined) {
        await dismiss(path);
        return undefined;
      }
      try {
        await pipe.writeFile([...words, END_OF_WORDS, ""].join("\n"));
      } catch {
        // It ended meanwhile, without the last word.
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
      return result ?? fail("TIMED_OUT", `runsc ${words[0]}: not finished within ${timeoutMs} ms`);
    },
  };
}

/** One that has not begun to read will find nobody to wait for: it cannot make its pipe, or finds it gone, or ended. */
async function dismiss(path: string): Promise<void> {
  const isFirst = await writeFile(path, "", { flag: "wx" }).then(
    () => true,
    () => false,
  );
  if (isFirst) return;
  // Open for both, so that whoever opens it before it is gone does not wait for a writer.
  const pipe = await open(path, constants.O_RDWR | constants.O_NONBLOCK).catch(() => undefined);
  await rm(path, { force: true });
  await pipe?.close();
}
