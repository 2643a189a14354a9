// Compiles clients' regular expressions so that a search takes time linear in the key, whatever the expression.
import { setFlagsFromString } from "node:v8";

/** After many backtracks V8 switches to its linear-time engine. */
setFlagsFromString("--enable-experimental-regexp-engine-on-excessive-backtracks");
setFlagsFromString("--regexp-backtracks-before-fallback=20000");

const MAX_PATTERN_BYTES = 4096;
/** Lookaround and back references, which the linear engine does not support. */
const NOT_LINEAR = /\(\?<?[=!]|\\[1-9]|\\k</;
/** Bounds counted repetitions, which multiply the engine's states. */
const MAX_COUNT = 1000;

/** Returns undefined for an invalid regular expression, or one whose search could take too long. */
export function patternOf(text: string): RegExp | undefined {
  if (text.length > MAX_PATTERN_BYTES || NOT_LINEAR.test(text)) return undefined;
  for (const [, least = "0", most = "0"] of text.matchAll(/\{(\d+)(?:,(\d*))?\}/g)) if (Number(least) > MAX_COUNT || Number(most) > MAX_COUNT) return undefined;
  try {
    return new RegExp(text);
  } catch {
    return undefined;
  }
}
