// The table of sandboxes and the latest events, as the server sends them; views read them when the version changes.
import { signal } from "@preact/signals";
import type { ConsoleEvent, ConsoleRow, FromServer } from "@svc/contract/console.ts";

/** The same bound as MAX_EVENTS of the contract. */
const MAX_EVENTS = 1_000;

export const rows = new Map<string, ConsoleRow>();
export let events: ConsoleEvent[] = [];
/** Rises with each batch; a view that reads it is drawn again. */
export const version = signal(0);
export const isLoaded = signal(false);
let isReloading = false;

export function takeTable(message: FromServer): void {
  if (message.t === "rows") {
    if (message.isFirst) {
      rows.clear();
      events = [];
    }
    isReloading = !message.isLast;
    for (const row of message.rows) rows.set(row.id, row);
    if (message.isLast) isLoaded.value = true;
  } else if (message.t === "batch") {
    for (const row of message.rows) rows.set(row.id, row);
    for (const id of message.gone) rows.delete(id);
    if (message.events.length > 0) events = [...events, ...message.events].slice(-MAX_EVENTS);
  }
  if (!isReloading) version.value++;
}

export function clearTable(): void {
  rows.clear();
  events = [];
  isLoaded.value = false;
}

/** The text of a filter: words that occur anywhere, and NAME=VALUE for metadata. */
export type Filter = { readonly text: string; readonly state: string };

export function matcher({ text, state }: Filter): (row: ConsoleRow) => boolean {
  const words = text
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== "");
  const pairs = words.filter((word) => /^[^=]+=/.test(word)).map((word) => [word.slice(0, word.indexOf("=")), word.slice(word.indexOf("=") + 1)] as const);
  const plain = words.filter((word) => !/^[^=]+=/.test(word));
  return (row) => {
    if (state === "failed" ? !hasFailed(row) : state !== "" && row.state !== state) return false;
    for (const [name, value] of pairs) {
      const found = Object.entries(row.metadata).find(([each]) => each.toLowerCase() === name)?.[1];
      if (found === undefined || !found.toLowerCase().includes(value)) return false;
    }
    if (plain.length === 0) return true;
    const whole = `${row.id} ${row.alias ?? ""} ${row.template} ${row.reason ?? ""} ${Object.values(row.metadata).join(" ")}`.toLowerCase();
    return plain.every((word) => whole.includes(word));
  };
}

/** Ends that a client requested, or that were due. */
const expected: ReadonlySet<string> = new Set(["killed", "timeout", "deleted"]);
export const hasFailed = (row: ConsoleRow): boolean => row.state === "ended" && !expected.has(row.reason ?? "");

export type SortKey = "started" | "left" | "name" | "template" | "state" | "memory";

const order: Readonly<Record<ConsoleRow["state"], number>> = { running: 0, paused: 1, ended: 2 };
const compare: Readonly<Record<SortKey, (a: ConsoleRow, b: ConsoleRow) => number>> = {
  started: (a, b) => b.startedAt - a.startedAt,
  left: (a, b) => order[a.state] - order[b.state] || a.endAt - b.endAt,
  name: (a, b) => (a.id < b.id ? -1 : 1),
  template: (a, b) => ((a.alias ?? a.template) < (b.alias ?? b.template) ? -1 : 1),
  state: (a, b) => order[a.state] - order[b.state] || Number(hasFailed(b)) - Number(hasFailed(a)) || b.startedAt - a.startedAt,
  memory: (a, b) => b.memoryMB - a.memoryMB,
};

export function select(filter: Filter, sort: SortKey, isReversed: boolean): ConsoleRow[] {
  const isWanted = matcher(filter);
  const found: ConsoleRow[] = [];
  for (const row of rows.values()) if (isWanted(row)) found.push(row);
  found.sort(compare[sort]);
  return isReversed ? found.reverse() : found;
}

export type Group = {
  readonly value: string;
  running: number;
  paused: number;
  ended: number;
  failed: number;
  readonly reasons: Map<string, number>;
  newest: number;
};

/** Groups rows by the value of a metadata member; rows without it are left out. */
export function groupBy(list: readonly ConsoleRow[], name: string): Group[] {
  const groups = new Map<string, Group>();
  for (const row of list) {
    const value = row.metadata[name];
    if (value === undefined) continue;
    const group = groups.get(value) ?? { value, running: 0, paused: 0, ended: 0, failed: 0, reasons: new Map(), newest: 0 };
    group[row.state]++;
    if (hasFailed(row)) group.failed++;
    if (row.reason !== undefined) group.reasons.set(row.reason, (group.reasons.get(row.reason) ?? 0) + 1);
    group.newest = Math.max(group.newest, row.startedAt);
    groups.set(value, group);
  }
  return [...groups.values()].sort((a, b) => b.failed - a.failed || b.newest - a.newest);
}

/** The names of metadata members in use, the most common first. */
export function labelNames(): string[] {
  const counts = new Map<string, number>();
  for (const { metadata } of rows.values()) for (const name of Object.keys(metadata)) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].sort(([, a], [, b]) => b - a).map(([name]) => name);
}
