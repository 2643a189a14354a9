// Extracts a build's steps from its log: their names, how long each took, and which came from the cache.

import { duration, plain } from "@svc/contract/table.ts";
import type { BuildLogEntry } from "@svc/contract/template-build.ts";

export type Step = {
  readonly title: string;
  readonly isCached: boolean;
  readonly startedAtMs: number;
  /** Undefined while the step is running. */
  endedAtMs: number | undefined;
  /** The newest lines of its output. */
  readonly output: string[];
};

const KEPT_LINES = 200;
const CACHED = / \(cached\)$/;
const TITLE = /^\[\d+\/\d+\] /;
const NAMES: Readonly<Record<string, string>> = { base: "base image", finalize: "start and ready commands" };

/** Collects the steps in the order of the log; each entry must be added once. */
export class Steps {
  readonly all: Step[] = [];
  #name: string | undefined;

  add({ step, message, timestamp }: BuildLogEntry): void {
    const atMs = Date.parse(timestamp);
    const isTitle = TITLE.test(message);
    if (step !== this.#name || isTitle || this.all.length === 0) {
      this.end(atMs);
      this.#name = step;
      const title = plain(isTitle ? message.replace(CACHED, "") : (NAMES[step ?? ""] ?? step ?? (this.all.length === 0 ? "waiting for its turn" : "build")));
      this.all.push({ title, isCached: isTitle && CACHED.test(message), startedAtMs: atMs, endedAtMs: undefined, output: [] });
      if (isTitle) return;
    }
    const output = this.all.at(-1)?.output;
    output?.push(plain(message.replaceAll("\t", "    ").trimEnd()));
    if (output !== undefined && output.length > KEPT_LINES) output.shift();
  }

  end(atMs: number): void {
    const last = this.all.at(-1);
    if (last !== undefined) last.endedAtMs ??= atMs;
  }
}

/** Formats one entry for a non-terminal: a step's output is indented below its title. */
export function lineOf({ message }: BuildLogEntry): string {
  return TITLE.test(message) ? plain(message) : `  ${plain(message.replaceAll("\t", "    ").trimEnd())}`;
}

/** 0.4 s, 12.3 s, 2 min 5 s */
export function took(ms: number): string {
  return ms < 60_000 ? `${(Math.max(0, ms) / 1000).toFixed(1)} s` : duration(ms);
}
