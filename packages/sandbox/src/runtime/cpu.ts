// The processor features on which checkpointed memory depends: programs in it use the features that they found at their start.
import { readFileSync } from "node:fs";
import { arch } from "node:os";
import { z } from "zod";

export const processorShape = z.object({ arch: z.string().max(32), flags: z.array(z.string().max(64)).max(1024) });
export type Processor = z.output<typeof processorShape>;

/** Features by Linux name that a program may use; the others belong to the kernel and change with its version. */
const usable =
  /^(fpu|mmx|cmov|cx8|cx16|fxsr|sse\w*|pni|ssse3|avx\w*|amx\w*|bmi[12]|adx|v?aes|v?pclmulqdq|sha_ni|sha512|sm[34]|popcnt|abm|movbe|f16c|fma4?|xop|tbm|lahf_lm|xsave\w*|xgetbv1|rdrand|rdseed|rdtscp|rdpid|fsgsbase|clflush\w*|clwb|3dnowprefetch|gfni|erms|fsrm|rtm|hle|movdir\w+|serialize|waitpkg|cldemote|pku|lm)$/;

let read: Processor | undefined;

/** Returns this machine's processor, from /proc/cpuinfo; it does not change while a process runs. */
export function thisProcessor(): Processor {
  read ??= processorOf(readFileSync("/proc/cpuinfo", "utf8"), arch());
  return read;
}

export function processorOf(cpuinfo: string, architecture: string): Processor {
  const flags = /^(?:flags|Features)\s*:\s*(.*)$/m.exec(cpuinfo)?.[1]?.trim().split(/\s+/) ?? [];
  const counted = architecture === "x64" ? flags.filter((flag) => usable.test(flag)) : flags;
  return { arch: architecture, flags: [...new Set(counted)].sort() };
}

/** Returns why memory taken on `needed` cannot be restored here, if so: this processor must have every feature that the programs may use. */
export function missingHere(needed: Processor, here: Processor): string | undefined {
  if (needed.arch !== here.arch) return `it was taken on ${needed.arch}, and this machine is ${here.arch}`;
  const has = new Set(here.flags);
  const missing = needed.flags.filter((flag) => !has.has(flag));
  return missing.length === 0 ? undefined : `this machine's processor lacks ${missing.join(", ")}`;
}
