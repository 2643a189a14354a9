// Where the servers of this machine keep their state, as the servers themselves decide it.
import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { UsageError } from "./complain.ts";

/** `$SVC_HOME`, else /var/lib/svc for root, else ~/.local/share/svc. */
export function homeDirectory(env: NodeJS.ProcessEnv = process.env): string {
  const named = env["SVC_HOME"];
  if (named !== undefined && named !== "") return resolve(named);
  return process.getuid?.() === 0 ? "/var/lib/svc" : join(homedir(), ".local/share/svc");
}

/** @throws UsageError for an empty `--home`: a shell's variable that is not set would make the current folder a home. */
export function chosenHome(given: string | undefined): string {
  if (given === "") throw new UsageError("--home: expected a folder, got an empty text");
  return given === undefined ? homeDirectory() : resolve(given);
}
