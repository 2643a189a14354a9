// Runs runsc's verbs with a time limit, and finds the files that it keeps of sandboxes.
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { asFailure } from "@svc/contract/failures.ts";
import { endOfOutput } from "./driver-failures.ts";
import { openRunscPrograms, type RunscPrograms } from "./gvisor-programs.ts";
import type { Host } from "./host.ts";

/** `code` is null for a program that was killed, including by its time limit. `message` describes the failure. */
export type Ended = { readonly code: number | null; readonly message: string };

type Sandbox = { readonly runtimeID: string; readonly directory: string };

export type Runsc = {
  readonly stateRoot: string;
  readonly programs: RunscPrograms;
  /** Runs `runsc VERB ... ID` with the sandbox's own program. A failure of that program is returned, not thrown. */
  verb(of: Sandbox, timeoutMs: number, verb: string, ...rest: readonly string[]): Promise<Ended>;
  /** Returns the names of the files in `stateRoot` that belong to sandboxes, or to the given one. */
  stateFiles(runtimeID?: string): Promise<string[]>;
  known(): Promise<string[]>;
};

export function openRunsc(host: Host): Runsc {
  const stateRoot = join(host.folder, "state");
  const programs = openRunscPrograms(host);

  async function stateFiles(runtimeID?: string): Promise<string[]> {
    const names = await readdir(stateRoot).catch(() => []);
    return names.filter((name) => idOf(name) !== undefined && (runtimeID === undefined || idOf(name) === runtimeID));
  }

  return {
    stateRoot,
    programs,
    async verb({ runtimeID, directory }, timeoutMs, verb, ...rest) {
      try {
        const argv = [await programs.of(directory), `--root=${stateRoot}`, verb, ...rest, runtimeID];
        const { code, signal, stderr, stdout } = await host.spawner.run(argv, { timeoutMs });
        return { code, message: code === 0 ? "" : `runsc ${verb} ended with ${code ?? signal}: ${endOfOutput(stderr || stdout)}` };
      } catch (error) {
        const failure = asFailure(error);
        if (failure.name === "HOST_UNSUITABLE") return { code: null, message: `runsc ${verb}: ${failure.message}` };
        if (failure.name !== "TIMED_OUT") throw failure;
        return { code: null, message: `runsc ${verb}: not finished within ${timeoutMs} ms` };
      }
    },
    stateFiles,
    known: async () => [...new Set((await stateFiles()).flatMap((name) => idOf(name) ?? []))],
  };
}

/** runsc names its files ID_sandbox:ID.state, ID_sandbox:ID.lock and runsc-ID.sock; ids have neither underscore, colon nor dash. */
function idOf(stateFile: string): string | undefined {
  return (/^([a-z0-9]+)_sandbox:\1\./.exec(stateFile) ?? /^runsc-([a-z0-9]+)\.sock$/.exec(stateFile))?.[1];
}
