// Shows a build while it runs: its steps with times, redrawn in place on a terminal, line by line elsewhere.
import { styleText } from "node:util";
import { cut } from "@svc/contract/screen.ts";
import type { BuildLogEntry } from "@svc/contract/template-build.ts";
import { LiveLines } from "../output/live-lines.ts";
import { lineOf, type Step, Steps, took } from "./build-lines.ts";

export type BuildView = {
  add(entry: BuildLogEntry): void;
  /** The build has ended; the output of a failed step stays on the screen. */
  close(isReady: boolean): void;
};

const REDRAW_MS = 150;
const OUTPUT_LINES = 6;
const FAILED_OUTPUT_LINES = 40;
const SPINNER = ["|", "/", "-", "\\"];

export function openBuildView(quiet: boolean): BuildView {
  if (quiet) return { add() {}, close() {} };
  if (process.stderr.isTTY !== true) return { add: (entry) => void process.stderr.write(`${lineOf(entry)}\n`), close() {} };
  const steps = new Steps();
  const lines = new LiveLines(process.stderr);
  let settled = 0;
  const draw = () => {
    const nowMs = Date.now();
    // Finished steps scroll up and are not drawn again; only running steps are redrawn.
    while (settled < steps.all.length && steps.all[settled]?.endedAtMs !== undefined) {
      const step = steps.all[settled++];
      if (step !== undefined) lines.settle([titleOf(step, nowMs, "done")]);
    }
    lines.draw(steps.all.slice(settled).flatMap((step) => [titleOf(step, nowMs, "running"), ...step.output.slice(-OUTPUT_LINES).map(indented)]));
  };
  const timer = setInterval(draw, REDRAW_MS);
  return {
    add: (entry) => steps.add(entry),
    close(isReady) {
      clearInterval(timer);
      const nowMs = Date.now();
      const last = steps.all.at(-1);
      if (isReady || last === undefined) {
        steps.end(nowMs);
        draw();
      } else {
        lines.draw([]);
        for (const step of steps.all.slice(settled)) {
          const isLast = step === last;
          if (isLast) step.endedAtMs ??= nowMs;
          lines.settle([titleOf(step, nowMs, isLast ? "failed" : "done"), ...(isLast ? step.output.slice(-FAILED_OUTPUT_LINES).map(indented) : [])]);
        }
      }
      lines.draw([]);
    },
  };
}

function titleOf(step: Step, nowMs: number, state: "running" | "done" | "failed"): string {
  const mark =
    state === "running"
      ? colour("cyan", SPINNER[Math.floor(nowMs / REDRAW_MS) % SPINNER.length] ?? "|")
      : state === "done"
        ? colour("green", "+")
        : colour("red", "x");
  const time = step.isCached ? colour("dim", "cached") : colour("dim", took((step.endedAtMs ?? nowMs) - step.startedAtMs));
  return `${mark} ${cut(step.title, Math.max(20, (process.stderr.columns || 80) - 16))}  ${time}`;
}

function indented(line: string): string {
  return colour("dim", `    ${line}`);
}

function colour(style: "cyan" | "green" | "red" | "dim", text: string): string {
  return styleText(style, text, { stream: process.stderr });
}
