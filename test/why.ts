// Why a part of a test run failed, in a few lines that stand right below its name: a log that was cut off still says it.

const MAX_LINES = 30;
const MAX_CHARS = 300;
/** Of an output that names no failing test: its beginning, and more of its end. */
const FIRST_LINES = 10;

/** What says nothing of a failure: frames of Node itself, and Go's words on tests that pass. */
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
