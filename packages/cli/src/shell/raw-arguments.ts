// Reads the command line and the variables from the kernel, since Node replaces bytes that are not UTF-8 with U+FFFD.
import { readFileSync } from "node:fs";
import { textOfBytes } from "@svc/contract/byte-text.ts";

const REPLACED = "\uFFFD";

/** Returns the arguments with all their bytes; if the kernel does not show them, as Node gave them. */
export function exactArguments(argv: readonly string[]): string[] {
  if (!argv.some((word) => word.includes(REPLACED))) return [...argv];
  const exact = list("/proc/self/cmdline").slice(-argv.length);
  return exact.length === argv.length ? exact : [...argv];
}

/** Returns a variable of this process with all its bytes. */
export function exactVariable(name: string): string | undefined {
  const value = process.env[name];
  if (value?.includes(REPLACED) !== true) return value;
  const found = list("/proc/self/environ").find((entry) => entry.startsWith(`${name}=`));
  return found === undefined ? value : found.slice(name.length + 1);
}

function list(file: string): string[] {
  let bytes: Buffer;
  try {
    bytes = readFileSync(file);
  } catch {
    return [];
  }
  const entries: string[] = [];
  for (let at = 0; at < bytes.length; ) {
    const end = bytes.indexOf(0, at);
    entries.push(textOfBytes(bytes.subarray(at, end < 0 ? bytes.length : end)));
    at = end < 0 ? bytes.length : end + 1;
  }
  return entries;
}
