// The output of every bench: rows of results with their goals, and the machine.
import { mkdirSync, writeFileSync } from "node:fs";
import { cpus, loadavg, release, totalmem } from "node:os";
import { fileURLToPath } from "node:url";

export type Row = {
  readonly what: string;
  readonly value: number;
  readonly unit: string;
  /** The required value, as `<=` or `>=` a number. */
  readonly goal?: { readonly atMost: number } | { readonly atLeast: number };
  readonly samples?: number;
  readonly note?: string;
};

export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil(sorted.length * share) - 1)] ?? Number.NaN;
}

export const median = (values: readonly number[]) => percentile(values, 0.5);

/** Reports progress on stderr, so that the table stays clean and a person sees that the bench is running. */
export function progress(text: string): void {
  process.stderr.write(`${(performance.now() / 1000).toFixed(0).padStart(5)} s  ${text}\n`);
}

/** The number of samples kept of a longer list: order statistics at equal distances. */
const MOST_SAMPLES = 1_000;

/** Prints the table and, unless only a part of a bench ran, writes bench/results/NAME.json with the raw samples. */
export function report(name: string, rows: readonly Row[], raw: Readonly<Record<string, unknown>>, isPart = false): void {
  const width = Math.max(...rows.map((row) => row.what.length));
  for (const row of rows) {
    const value = `${round(row.value)} ${row.unit}`.padStart(14);
    process.stdout.write(`${row.what.padEnd(width)} ${value}  ${goalText(row).padEnd(26)} ${row.note ?? ""}\n`);
  }
  if (isPart)
    return void process.stdout.write(
      `load average ${loadavg()
        .map((load) => load.toFixed(1))
        .join(", ")}\n`,
    );
  const machine = { cpu: cpus()[0]?.model, cores: cpus().length, memoryBytes: totalmem(), kernel: release(), node: process.version, loadAverage: loadavg() };
  const directory = fileURLToPath(new URL("./results/", import.meta.url));
  mkdirSync(directory, { recursive: true });
  writeFileSync(`${directory}${name}.json`, `${text({ name, date: new Date().toISOString(), machine, rows, raw })}\n`);
}

/** Formats indented JSON in which a list of numbers takes one line. */
function text(result: unknown): string {
  const lists: string[] = [];
  const marked = JSON.stringify(
    result,
    (_, value: unknown) => {
      if (!Array.isArray(value) || value.length === 0 || !value.every((each) => typeof each === "number")) return value;
      lists.push(JSON.stringify(thinned(value)));
      return `list ${lists.length - 1}`;
    },
    1,
  );
  return marked.replace(/"list (\d+)"/g, (_, index: string) => lists[Number(index)] ?? "[]");
}

function thinned(values: readonly number[]): number[] {
  const short = (value: number) => Number(value.toPrecision(4));
  if (values.length <= MOST_SAMPLES) return values.map(short);
  const sorted = values.toSorted((a, b) => a - b);
  return Array.from({ length: MOST_SAMPLES }, (_, index) => short(sorted[Math.ceil(((index + 1) / MOST_SAMPLES) * sorted.length) - 1] ?? Number.NaN));
}

function goalText({ goal, value, unit }: Row): string {
  if (goal === undefined) return "";
  if ("atMost" in goal) return `asked <= ${goal.atMost} ${unit}: ${value <= goal.atMost ? "reached" : "NOT reached"}`;
  return `asked >= ${goal.atLeast} ${unit}: ${value >= goal.atLeast ? "reached" : "NOT reached"}`;
}

function round(value: number): string {
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3);
}
