// runsc as a program: its verbs with a bound in time, and what its own records say of a sandbox.
import { readdir, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { asFailure } from "@svc/contract/failures.ts";
import { lastWords } from "./driver.ts";
import type { Host } from "./host.ts";
import { eventually } from "./process.ts";
import { findProgram } from "./programs.ts";

const LOOK_TIMEOUT_MS = 10_000;
/** How long a killed client's checkpoint may go on before what is seen is believed. */
const LOOK_BOUND_MS = 60_000;

/** `code` is null for a program that was killed, also by its bound in time. `words` say what went wrong, for a message. */
export type Ended = { readonly code: number | null; readonly words: string };

export type Runsc = {
  readonly stateRoot: string;
  program(): Promise<string>;
  /** Runs `runsc VERB ...`; the sandbox's id is among the arguments. Never throws for what the program did. */
  verb(timeoutMs: number, verb: string, ...rest: readonly string[]): Promise<Ended>;
  /** What runsc keeps of a sandbox, as text; undefined where there is none, or a verb was killed while it wrote. */
  recordOf(runtimeID: string): Promise<string | undefined>;
  /** Corrects it after a verb that was killed between doing its work and writing it down. */
  setRecord(runtimeID: string, record: string, status: "running" | "paused"): Promise<void>;
  /** Whether every task inside is stopped, asked of the kernel inside itself and not of the record. */
  standsStill(runtimeID: string): Promise<boolean>;
  /** Names of the files in `stateRoot` that belong to sandboxes, or to one of them. */
  stateFiles(runtimeID?: string): Promise<string[]>;
  known(): Promise<string[]>;
};

export function openRunsc(host: Host): Runsc {
  const stateRoot = join(host.folder, "state");
  const program = () => findProgram("runsc", host.programs?.runsc);
  const pathOf = (runtimeID: string) => join(stateRoot, `${runtimeID}_sandbox:${runtimeID}.state`);

  async function stateFiles(runtimeID?: string): Promise<string[]> {
    const names = await readdir(stateRoot).catch(() => []);
    return names.filter((name) => idOf(name) !== undefined && (runtimeID === undefined || idOf(name) === runtimeID));
  }

  return {
    stateRoot,
    program,
    async verb(timeoutMs, verb, ...rest) {
      const argv = [await program(), `--root=${stateRoot}`, verb, ...rest];
      try {
        const { code, signal, stderr, stdout } = await host.spawner.run(argv, { timeoutMs });
        return { code, words: code === 0 ? "" : `runsc ${verb} ended with ${code ?? signal}: ${lastWords(stderr || stdout)}` };
      } catch (error) {
        const failure = asFailure(error);
        if (failure.name !== "TIMED_OUT") throw failure;
        return { code: null, words: `runsc ${verb}: no end within ${timeoutMs} ms` };
      }
    },
    async recordOf(runtimeID) {
      const text = await readFile(pathOf(runtimeID), "utf8").catch(() => "");
      return statusOf(text) === undefined ? undefined : text;
    },
    async setRecord(runtimeID, record, status) {
      const fresh = join(stateRoot, `${runtimeID}.new`);
      await writeFile(fresh, record.replace(statusPattern, `"status":"${status}"`), { mode: 0o600 });
      await rename(fresh, pathOf(runtimeID));
    },
    async standsStill(runtimeID) {
      let all = false;
      await eventually(async () => {
        const { stdout } = await host.spawner.run([await program(), `--root=${stateRoot}`, "debug", "-stacks", runtimeID], { timeoutMs: LOOK_TIMEOUT_MS });
        const count = (text: string) => stdout.split(text).length - 1;
        const [tasks, stopped] = [count("kernel.(*Task).run("), count("kernel.(*Task).doStop(")];
        all = tasks > 0 && stopped === tasks;
        // A killed client's wish may still be on its way in; connections are taken in their order, so ours shows all before it.
        return count("created by gvisor.dev/gvisor/pkg/urpc.(*Server).StartHandling") <= 1;
      }, LOOK_BOUND_MS);
      return all;
    },
    stateFiles,
    known: async () => [...new Set((await stateFiles()).flatMap((name) => idOf(name) ?? []))],
  };
}

const statusPattern = /"status":"([a-z]+)"/;

/** undefined for text that a killed program has left half-written. */
export function statusOf(record: string): string | undefined {
  return record.endsWith("}") ? statusPattern.exec(record)?.[1] : undefined;
}

/** runsc names its files ID_sandbox:ID.state and .lock, runsc-ID.sock, and ID.new is made here; ids have neither underscore, colon nor dash. */
function idOf(stateFile: string): string | undefined {
  return (/^([a-z0-9]+)_sandbox:\1\./.exec(stateFile) ?? /^runsc-([a-z0-9]+)\.sock$/.exec(stateFile) ?? /^([a-z0-9]+)\.new$/.exec(stateFile))?.[1];
}
