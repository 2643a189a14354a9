// How a command ends badly: one line on stderr, and an exit code.
import { writeSync } from "node:fs";
import { styleText } from "node:util";
import { shownText } from "@svc/contract/byte-text.ts";
import { Failure } from "@svc/contract/failures.ts";

export const EXIT_FAILURE = 1;
export const EXIT_USAGE = 2;

/** A command line that cannot be carried out as written. */
export class UsageError extends Error {}

/** A failure that a command foresees: its message says all, and needs no stack. */
export class ForeseenError extends Error {
  readonly code = "FORESEEN";
}

/** Writes the line and gives the exit code. SVC_DEBUG=1 adds the stack. */
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
  // Not foreseen: the stack is what a report needs.
  const isPlain = error instanceof Error && "code" in error;
  if (process.env["SVC_DEBUG"] === "1" || (!isPlain && error instanceof Error)) process.stderr.write(`${(error as Error).stack}\n`);
  return code;
}

function say(message: string, code: number): number {
  process.stderr.write(`${styleText("red", "svc:", { stream: process.stderr })} ${printable(message.trim())}\n`);
  return code;
}

/** Bytes of a damaged file that a message quotes must not command the terminal. */
function printable(text: string): string {
  return shownText(text.replace(/[^\P{Cc}\n\t]/gu, "?"));
}

/** A remark for people: on stderr, so that stdout holds only what was asked for. */
export function remark(text: string): void {
  try {
    writeSync(process.stderr.fd, `${printable(text)}\n`);
  } catch (error) {
    // A log on a full disk: what was being done matters more than that it is told. Through the stream it would end the process.
    if ((error as NodeJS.ErrnoException).code === "EAGAIN") process.stderr.write(`${printable(text)}\n`);
  }
}
