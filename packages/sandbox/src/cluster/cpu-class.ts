// The class of this machine's processor, by which placement distinguishes nodes: the levels of the x86-64 psABI.
import { readFileSync } from "node:fs";
import { type Processor, thisProcessor } from "../runtime/cpu.ts";

/** The flags that each level adds to the level below it, spelled as in /proc/cpuinfo. */
const levels: readonly (readonly [level: string, flags: readonly string[]])[] = [
  ["x86-64-v2", ["cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"]],
  ["x86-64-v3", ["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"]],
  ["x86-64-v4", ["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]],
];

/** Returns for example `x86-64-v3`, or the bare architecture of other processors. */
export function cpuClassOf({ arch, flags }: Processor): string {
  if (arch !== "x64") return arch;
  let found = "x86-64";
  for (const [level, needed] of levels) {
    if (!needed.every((flag) => flags.includes(flag))) break;
    found = level;
  }
  return found;
}

export type Machine = { readonly cpuArchitecture: string; readonly cpuFamily: string; readonly cpuModel: string; readonly cpuModelName: string };

/** Describes the processor for people. */
export function machineOf(cpuinfo: string, cpuArchitecture: string): Machine {
  const read = (name: string) => new RegExp(`^${name}\\s*:\\s*(.*)$`, "m").exec(cpuinfo)?.[1]?.trim() ?? "";
  return { cpuArchitecture, cpuFamily: read("cpu family"), cpuModel: read("model"), cpuModelName: read("model name") };
}

export function thisMachine(): Machine & { readonly cpuClass: string } {
  const processor = thisProcessor();
  return { ...machineOf(readFileSync("/proc/cpuinfo", "utf8"), processor.arch), cpuClass: cpuClassOf(processor) };
}
