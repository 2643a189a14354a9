// Regular expressions of clients: searched in keys in time that grows with the key and not with the expression's cleverness.
import { setFlagsFromString } from "node:v8";

/** Where backtracking gets long, V8 goes on with its linear engine. */
setFlagsFromString("--enable-experimental-regexp-engine-on-excessive-backtracks");
setFlagsFromString("--regexp-backtracks-before-fallback=20000");

const MAX_PATTERN_BYTES = 4096;
/** What the linear engine cannot do: looking around, references to what was matched. */
const NOT_LINEAR = /\(\?<?[=!]|\\[1-9]|\\k</;
/** Counted repetitions multiply the engine's states. */
const MAX_COUNT = 1000;

/** Undefined where it is not a regular expression, or one that could hold everything up. */
export function patternOf(text: string): RegExp | undefined {
  if (text.length > MAX_PATTERN_BYTES || NOT_LINEAR.test(text)) return undefined;
  for (const [, least = "0", most = "0"] of text.matchAll(/\{(\d+)(?:,(\d*))?\}/g)) if (Number(least) > MAX_COUNT || Number(most) > MAX_COUNT) return undefined;
  try {
    return new RegExp(text);
  } catch {
    return undefined;
  }
}
