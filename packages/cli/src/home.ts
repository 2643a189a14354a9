// The home that a command line names.
import { homeAt, homeDirectory } from "@svc/contract/home.ts";
import { UsageError } from "./complain.ts";

/** @throws UsageError for an empty `--home`: a shell's variable that is not set would make the current folder a home. */
export function chosenHome(given: string | undefined): string {
  if (given === "") throw new UsageError("--home: expected a folder, got an empty text");
  return given === undefined ? homeDirectory() : homeAt(given);
}
