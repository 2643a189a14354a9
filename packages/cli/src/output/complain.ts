// Reports a command's failure: one line on stderr, and an exit code.
import { writeSync } from "node:fs";
import { styleText } from "node:util";
import { shownText } from "@svc/contract/byte-text.ts";
import { Failure } from "@svc/contract/failures.ts";

export const EXIT_FAILURE = 1;
export const EXIT_USAGE = 2;

/** A command line that cannot be executed as written. */
export class UsageError extends Error {}

/** An expected failure of a command: its message is complete, so no stack is printed. */
export class ForeseenError extends Error {
  readonly code = "FORESEEN";
}

/** Prints the error and returns the exit code. SVC_DEBUG=1 adds the stack. */
export function complain(error: unknown): number {
  if (error instanceof UsageError) return say(error.message, EXIT_USAGE);
  if (error instanceof Failure) {
    const retry = error.retryAfterSeconds === undefined ? "" : ` (try again in ${error.retryAfterSeconds} s)`;
    const code = say(error.message + retry, error.details["exitCode"] === EXIT_USAGE ? EXIT_USAGE : EXIT_FAILURE);
    if (process.env["SVC_DEBUG"] === "1") process.stderr.write(`${error.stack}\n`);
    return code;
  }
  const message = error instanceof Error ? error.message : String(error);
  const code = say(message, EXIT_FAILURE);
  // An unexpected error prints its stack, which a bug report needs.
  const isPlain = error instanceof Error && "code" in error;
  if (process.env["SVC_DEBUG"] === "1" || (!isPlain && error instanceof Error)) process.stderr.write(`${(error as Error).stack}\n`);
  return code;
}

function say(message: string, code: number): number {
  process.stderr.write(`${styleText("red", "svc:", { stream: process.stderr })} ${printable(message.trim())}\n`);
  return code;
}

/** A message may quote bytes of a damaged file, which must not send control characters to the terminal. */
function printable(text: string): string {
  return shownText(text.replace(/[^\P{Cc}\n\t]/gu, "?"));
}

/** Prints a remark on stderr, so that stdout contains only the command's output. */
export function remark(text: string): void {
  try {
    writeSync(process.stderr.fd, `${printable(text)}\n`);
  } catch (error) {
    // stderr may be a log on a full disk. The command is more important than the remark; writing to the stream instead would end the process.
    if ((error as NodeJS.ErrnoException).code === "EAGAIN") process.stderr.write(`${printable(text)}\n`);
  }
}
