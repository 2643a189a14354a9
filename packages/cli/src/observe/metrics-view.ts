// Draws metrics of sandboxes as lines for a terminal: bars and histories, for one sandbox in detail or for many as in top.
import { styleText } from "node:util";
import type { SandboxMetric } from "@svc/contract/observe.ts";
import { byteSize, duration, plain } from "@svc/contract/table.ts";

export type Watched = {
  readonly sandboxID: string;
  /** The template's name or id. */
  readonly template: string;
  /** One of running, paused, ended. */
  readonly state: string;
  readonly startedAtMs: number;
  readonly endAtMs: number;
  /** Samples, oldest first. */
  readonly samples: readonly SandboxMetric[];
};

export type Size = { readonly columns: number; readonly rows: number };

/** true if the terminal can show Unicode characters. */
const isUnicode = /utf-?8/i.test(process.env["LC_ALL"] || process.env["LC_CTYPE"] || process.env["LANG"] || "");
const STEPS = isUnicode ? "▁▂▃▄▅▆▇█" : "_.-:=+*#";
const [FULL, EMPTY] = isUnicode ? ["█", "░"] : ["#", "-"];
const BAR = 24;
const SMALL_BAR = 10;
const WARM_SHARE = 0.7;
const HOT_SHARE = 0.9;

/** Draws one sandbox: a bar and a history each for CPU, memory and disk. */
export function oneFrame(watched: Watched, note: string, { columns }: Size, nowMs: number): string[] {
  const { samples } = watched;
  const newest = samples.at(-1);
  const head = [bold(watched.sandboxID), plain(watched.template), watched.state, lifeOf(watched, nowMs)].filter((part) => part !== "").join("  ");
  const end = note === "" ? dim("q or Ctrl-C ends") : note;
  if (newest === undefined) return [head, "", "no metrics yet: a sample is taken every few seconds", "", end];
  const freeColumns = Math.max(0, columns - BAR - 46);
  const row = (name: string, share: number, text: string, history: readonly number[]) =>
    `${name.padEnd(5)}${bar(share, BAR)}  ${text.padEnd(36)}${spark(history, freeColumns)}`;
  return [
    head,
    "",
    row("CPU", cpuShare(newest), `${newest.cpuUsedPct.toFixed(1)} % of ${newest.cpuCount * 100} %`, samples.map(cpuShare)),
    row(
      "MEM",
      memoryShare(newest),
      `${byteSize(newest.memUsed)} of ${byteSize(newest.memTotal)}, cache ${byteSize(newest.memCache)}`,
      samples.map(memoryShare),
    ),
    row("DISK", diskShare(newest), `${byteSize(newest.diskUsed)} of ${byteSize(newest.diskTotal)}`, samples.map(diskShare)),
    "",
    dim(`${samples.length} samples, the newest ${duration(nowMs - Date.parse(newest.timestamp))} old`),
    end,
  ];
}

/** Draws many sandboxes, the busiest first; those that do not fit are counted. */
export function manyFrame(all: readonly Watched[], note: string, { columns, rows }: Size, nowMs: number): string[] {
  const idWidth = Math.max("SANDBOX ID".length, ...all.map(({ sandboxID }) => sandboxID.length));
  const templateWidth = Math.min(20, Math.max("TEMPLATE".length, ...all.map(({ template }) => template.length)));
  const fixed = idWidth + templateWidth + 2 * 8 + 3 * SMALL_BAR + 34;
  const freeColumns = Math.max(0, columns - fixed);
  const sorted = all.toSorted((a, b) => (b.samples.at(-1)?.cpuUsedPct ?? -1) - (a.samples.at(-1)?.cpuUsedPct ?? -1) || (a.sandboxID < b.sandboxID ? -1 : 1));
  const line = (watched: Watched) => {
    const name = `${watched.sandboxID.padEnd(idWidth)}  ${plain(watched.template).slice(0, templateWidth).padEnd(templateWidth)}  ${watched.state.padEnd(7)}`;
    const newest = watched.samples.at(-1);
    if (newest === undefined) return `${name}  -`;
    const bars = [
      `${bar(cpuShare(newest), SMALL_BAR)} ${`${newest.cpuUsedPct.toFixed(0)} %`.padStart(6)}`,
      `${bar(memoryShare(newest), SMALL_BAR)} ${byteSize(newest.memUsed).padStart(10)}`,
      `${bar(diskShare(newest), SMALL_BAR)} ${byteSize(newest.diskUsed).padStart(10)}`,
    ];
    return `${name}  ${bars.join("  ")}  ${spark(watched.samples.map(cpuShare), freeColumns)}`;
  };
  const heads = `${"SANDBOX ID".padEnd(idWidth)}  ${"TEMPLATE".padEnd(templateWidth)}  ${"STATE".padEnd(7)}  ${"CPU".padEnd(SMALL_BAR + 7)}  ${"MEM".padEnd(SMALL_BAR + 11)}  ${"DISK".padEnd(SMALL_BAR + 11)}  ${freeColumns > 8 ? "CPU HISTORY" : ""}`;
  const running = all.filter(({ state }) => state === "running").length;
  const shown = sorted.slice(0, Math.max(1, rows - 5));
  const hidden = all.length - shown.length;
  return [
    `${bold(`${all.length} ${all.length === 1 ? "sandbox" : "sandboxes"}`)}, ${running} running  ${clockOf(nowMs)}`,
    note === "" ? dim("q or Ctrl-C ends") : note,
    "",
    bold(heads.trimEnd()),
    ...shown.map(line),
    ...(hidden > 0 ? [dim(`${hidden} more, less busy`)] : []),
  ];
}

function lifeOf({ state, startedAtMs, endAtMs }: Watched, nowMs: number): string {
  return state === "running" ? `up ${duration(nowMs - startedAtMs)}, ${duration(endAtMs - nowMs)} left` : "";
}

function clockOf(nowMs: number): string {
  return new Date(nowMs - new Date(nowMs).getTimezoneOffset() * 60_000).toISOString().slice(11, 19);
}

const share = (used: number, total: number) => (total > 0 ? Math.min(1, Math.max(0, used / total)) : 0);
const cpuShare = ({ cpuUsedPct, cpuCount }: SandboxMetric) => share(cpuUsedPct, cpuCount * 100);
const memoryShare = ({ memUsed, memTotal }: SandboxMetric) => share(memUsed, memTotal);
const diskShare = ({ diskUsed, diskTotal }: SandboxMetric) => share(diskUsed, diskTotal);

/** A value above zero is never drawn as empty, a value below one never as full. */
export function bar(value: number, width: number): string {
  const full = value <= 0 ? 0 : value >= 1 ? width : Math.min(width - 1, Math.max(1, Math.round(value * width)));
  return colour(value, FULL.repeat(full)) + dim(EMPTY.repeat(width - full));
}

/** Draws the newest `width` values, each between 0 and 1. */
export function spark(values: readonly number[], width: number): string {
  return values
    .slice(-width || values.length)
    .slice(0, width)
    .map((value) => STEPS[Math.min(STEPS.length - 1, Math.floor(value * STEPS.length))] ?? "")
    .join("");
}

function colour(value: number, text: string): string {
  return styleText(value >= HOT_SHARE ? "red" : value >= WARM_SHARE ? "yellow" : "green", text, { stream: process.stdout });
}

function dim(text: string): string {
  return styleText("dim", text, { stream: process.stdout });
}

function bold(text: string): string {
  return styleText("bold", text, { stream: process.stdout });
}
