// The home directory that a command line selects.
import { homeAt, homeDirectory } from "@svc/contract/home.ts";
import { UsageError } from "../output/complain.ts";

/** @throws UsageError for an empty `--home`: an unset shell variable would otherwise make the current folder the home. */
export function chosenHome(given: string | undefined): string {
  if (given === "") throw new UsageError("--home: expected a folder, got an empty text");
  return given === undefined ? homeDirectory() : homeAt(given);
}
