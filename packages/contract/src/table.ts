// How answers are printed: a table, on a terminal and in a pipe alike, or JSON by --output json.
import { styleText } from "node:util";

export type OutputFormat = "table" | "json";

/** The default is the same in a pipe: people read tables through `less` and `grep`, and a script names the format that it parses. */
export function outputFormat(given: OutputFormat | undefined): OutputFormat {
  return given ?? "table";
}

export function printJSON(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value, null, 2)}\n`);
}

/** Prints one object per line, for answers that are long or unbounded. */
export function printJSONLine(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

/** Prints columns as wide as their widest cell, with two spaces between; numbers are given as text. */
export function printTable(columns: readonly string[], rows: readonly (readonly string[])[]): void {
  const widths = columns.map((column, index) => Math.max(column.length, ...rows.map((row) => plain(row[index]).length)));
  const line = (cells: readonly string[]) =>
    cells
      .map((cell, index) => plain(cell).padEnd(widths[index] ?? 0))
      .join("  ")
      .trimEnd();
  process.stdout.write(`${styleText("bold", line(columns), { stream: process.stdout })}\n`);
  for (const row of rows) process.stdout.write(`${line(row)}\n`);
}

/** Names are chosen by the sandbox's creator, so control characters must not reach the terminal. */
export function plain(cell: string | undefined): string {
  return (cell ?? "").replace(/[\p{Cc}\p{Cf}]/gu, "?");
}

/** 59 s, 4 min 5 s, 3 h 2 min, 5 d 1 h */
export function duration(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  const parts: [number, string][] = [
    [86_400, "d"],
    [3600, "h"],
    [60, "min"],
    [1, "s"],
  ];
  const first = parts.findIndex(([size]) => seconds >= size);
  if (first === -1) return "0 s";
  const [size, unit] = parts[first] ?? [1, "s"];
  const [nextSize, nextUnit] = parts[first + 1] ?? [0, ""];
  const rest = nextSize === 0 ? 0 : Math.floor((seconds % size) / nextSize);
  return `${Math.floor(seconds / size)} ${unit}${rest === 0 ? "" : ` ${rest} ${nextUnit}`}`;
}

const units = ["B", "KiB", "MiB", "GiB", "TiB"] as const;

export function byteSize(bytes: number): string {
  const power = bytes < 1024 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  return `${power === 0 ? Math.round(bytes) : (bytes / 1024 ** power).toFixed(1)} ${units[power]}`;
}
