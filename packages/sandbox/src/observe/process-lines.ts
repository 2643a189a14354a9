// Formats the start and the end of a process for a sandbox's log.

import type { ProcessEntry } from "../agent/process-log.ts";
import type { Line } from "./log-file.ts";

const MAX_TEXT = 1_024;
/** Code in the sandbox chooses these characters, and they must not control a terminal that prints the log. */
const unprintable = /[\p{Cc}\p{Cf}\u2028\u2029]/gu;

export function processLine(entry: ProcessEntry): Pick<Line, "k" | "l" | "m" | "f"> {
  const { pid, cut, ended, exitCode, millis } = entry;
  const command = printable(entry.command) + (cut ? " …" : "");
  const user = printable(entry.user);
  const status = printable(entry.status);
  const about = { pid: String(pid), user, command };
  if (!ended) return { k: "process", l: "info", m: `process ${pid} started by ${user}: ${command}`, f: { event: "started", ...about } };
  const isFine = exitCode === 0 && status === "exit status 0";
  return {
    k: "process",
    l: isFine ? "info" : "warn",
    m: `process ${pid} ended with ${status} after ${millis} ms: ${command}`,
    f: { event: "ended", ...about, exitCode: String(exitCode), status, durationMs: String(millis) },
  };
}

function printable(text: string): string {
  return text.replace(unprintable, (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`).slice(0, MAX_TEXT);
}
