// Extracts why a part of a test run failed, in a few lines directly below its name, so that even a truncated log shows the reason.

const MAX_LINES = 30;
const MAX_CHARS = 300;
/** The lines shown of the beginning of an output that names no failing test; more are shown of its end. */
const FIRST_LINES = 10;

/** Lines that do not explain a failure: stack frames of Node itself, and Go's messages about passing tests. */
const noise = /^\s+at .*\(?node:internal|^=== (RUN|PAUSE|CONT|NAME)|^\s*--- (PASS|SKIP)|^(PASS|ok)\b|^\?\s/;

export function whyOf(output: string): readonly string[] {
  // node:test repeats its failures at the end of its report.
  const section = /^✖ failing tests:$/m.exec(output);
  const text = section === null ? output : output.slice(section.index + section[0].length);
  const lines = text.split("\n").filter((line) => line.trim() !== "" && !noise.test(line));
  const shown =
    section !== null || lines.length <= MAX_LINES
      ? lines.slice(0, MAX_LINES)
      : [...lines.slice(0, FIRST_LINES), "…", ...lines.slice(FIRST_LINES + 1 - MAX_LINES)];
  return shown.map((line) => (line.length > MAX_CHARS ? `${line.slice(0, MAX_CHARS)}…` : line));
}
