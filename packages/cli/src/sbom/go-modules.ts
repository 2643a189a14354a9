// The Go modules that a program was built from, as the Go toolchain writes them into it.
import { readFileSync, statSync } from "node:fs";

export type GoModule = { readonly path: string; readonly version: string };

/** The toolchain puts the text of the modules between these bytes. */
const BEGIN = Buffer.from("3077af0c9274080241e1c107e6d618e6", "hex");
const END = Buffer.from("f932433186182072008242104116d8f2", "hex");
const MAX_PROGRAM_BYTES = 512 * 2 ** 20;

/** Returns the main module first; empty for a program that was not built by Go, or that is larger than 512 MiB. @throws if the file cannot be read. */
export function goModulesOf(program: string): GoModule[] {
  if (statSync(program).size > MAX_PROGRAM_BYTES) return [];
  const bytes = readFileSync(program);
  const at = bytes.indexOf(BEGIN);
  const end = bytes.indexOf(END, at);
  if (at < 0 || end < 0) return [];
  const text = bytes.subarray(at + BEGIN.length, end).toString("utf8");
  const modules: GoModule[] = [];
  for (const line of text.split("\n")) {
    const [kind, path, version] = line.split("\t");
    if (path === undefined || version === undefined) continue;
    // A replaced module is followed by the one that was built in its place.
    if (kind === "=>") modules.pop();
    if (kind === "mod" || kind === "dep" || kind === "=>") modules.push({ path, version });
  }
  return modules;
}
