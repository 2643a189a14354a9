// The table of sandboxes and the latest events, as the server sends them; views read them when the version changes.
import { signal } from "@preact/signals";
import type { ConsoleEvent, ConsoleRow, FromServer } from "@svc/contract/console.ts";

/** The same bound as MAX_EVENTS of the contract. */
const MAX_EVENTS = 1_000;

export const rows = new Map<string, ConsoleRow>();
export let events: ConsoleEvent[] = [];
/** Increases with each batch of changes; a view that reads it is then drawn again. */
export const version = signal(0);
export const isLoaded = signal(false);
let isReloading = false;
/** The rows that changed since the list was last computed, so that the cost of a batch depends on its changes and not on the number of rows. */
let changed = new Set<string>();
export type Counts = { all: number; running: number; paused: number; ended: number; failed: number };
export const counts: Counts = { all: 0, running: 0, paused: 0, ended: 0, failed: 0 };
const labels = new Map<string, number>();

function count(row: ConsoleRow, by: 1 | -1): void {
  counts.all += by;
  counts[row.state] += by;
  if (hasFailed(row)) counts.failed += by;
  for (const name of Object.keys(row.metadata)) labels.set(name, (labels.get(name) ?? 0) + by);
}

function put(row: ConsoleRow): void {
  const known = rows.get(row.id);
  if (known !== undefined) count(known, -1);
  count(row, 1);
  rows.set(row.id, row);
  changed.add(row.id);
}

function drop(id: string): void {
  const known = rows.get(id);
  if (known === undefined) return;
  count(known, -1);
  rows.delete(id);
  changed.add(id);
}

export function takeTable(message: FromServer): void {
  if (message.t === "rows") {
    if (message.isFirst) {
      empty();
      events = [];
    }
    isReloading = !message.isLast;
    for (const row of message.rows) put(row);
    if (message.isLast) isLoaded.value = true;
  } else if (message.t === "batch") {
    for (const row of message.rows) put(row);
    for (const id of message.gone) drop(id);
    if (message.events.length > 0) events = [...events, ...message.events].slice(-MAX_EVENTS);
  }
  if (!isReloading) version.value++;
}

function empty(): void {
  rows.clear();
  labels.clear();
  Object.assign(counts, { all: 0, running: 0, paused: 0, ended: 0, failed: 0 });
  computed = undefined;
}

export function clearTable(): void {
  empty();
  events = [];
  isLoaded.value = false;
}

/**
 * A row matches `text` if it contains every word of it anywhere. A word NAME=VALUE matches a whole value of its metadata, NAME=VALUE* the beginning of
 * one, and NAME= any. Names and values with spaces or quotes are written as JSON strings.
 */
export type Filter = { readonly text: string; readonly state: string };

export function matcher({ text, state }: Filter): (row: ConsoleRow) => boolean {
  const words = text.toLowerCase().match(WORD) ?? [];
  const pairs = words.flatMap((word) => [pairIn(word)].filter((pair) => pair !== undefined));
  const plain = words.filter((word) => pairIn(word) === undefined);
  return (row) => {
    if (state === "failed" ? !hasFailed(row) : state !== "" && row.state !== state) return false;
    for (const { name, value, isBeginning } of pairs) {
      const found = Object.entries(row.metadata)
        .find(([each]) => each.toLowerCase() === name)?.[1]
        ?.toLowerCase();
      if (found === undefined || !(isBeginning ? found.startsWith(value) : found === value)) return false;
    }
    if (plain.length === 0) return true;
    const whole = `${row.id} ${row.alias ?? ""} ${row.template} ${row.reason ?? ""} ${Object.values(row.metadata).join(" ")}`.toLowerCase();
    return plain.every((word) => whole.includes(word));
  };
}

const QUOTED = String.raw`"(?:[^"\\]|\\.)*"`;
const WORD = new RegExp(String.raw`(?:${QUOTED}|[^\s="])+=(?:${QUOTED}|[^\s"]\S*)?|\S+`, "g");

type Pair = { readonly name: string; readonly value: string; readonly isBeginning: boolean };

function pairIn(word: string): Pair | undefined {
  const [, name, value = ""] = new RegExp(`^(${QUOTED}|[^="]+)=(${QUOTED}|.*)$`, "s").exec(word) ?? [];
  if (name === undefined) return undefined;
  const isBeginning = value === "" || (!value.startsWith('"') && value.endsWith("*"));
  return { name: unquoted(name), value: unquoted(isBeginning ? value.replace(/\*$/, "") : value), isBeginning };
}

function unquoted(text: string): string {
  try {
    return text.startsWith('"') ? String(JSON.parse(text)) : text;
  } catch {
    return text;
  }
}

/** The filter for the rows with exactly this metadata. */
export function filterFor(name: string, value: string): string {
  const quoted = (text: string) => (/^[^\s="*]+$/.test(text) ? text : JSON.stringify(text));
  return `${quoted(name)}=${quoted(value)}`;
}

/** The reasons of an end that a client requested or that was due; every other end counts as a failure. */
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

type Computed = { readonly key: string; readonly list: ConsoleRow[] };
let computed: Computed | undefined;

/** Returns the rows that match a filter, sorted. If filter and order are the same as in the last call, it merges the changes into that list. */
export function select(filter: Filter, sort: SortKey, isReversed: boolean): ConsoleRow[] {
  const key = JSON.stringify([filter, sort, isReversed]);
  const isWanted = matcher(filter);
  const order = isReversed ? (a: ConsoleRow, b: ConsoleRow) => compare[sort](b, a) : compare[sort];
  const fresh = changed;
  changed = new Set();
  const former = computed?.key === key ? computed.list : undefined;
  const list = former === undefined ? [...rows.values()].filter(isWanted).sort(order) : merged(former, fresh, isWanted, order);
  computed = { key, list };
  return list;
}

function merged(
  former: ConsoleRow[],
  fresh: ReadonlySet<string>,
  isWanted: (row: ConsoleRow) => boolean,
  order: (a: ConsoleRow, b: ConsoleRow) => number,
): ConsoleRow[] {
  if (fresh.size === 0) return former;
  const incoming = [...fresh]
    .flatMap((id) => rows.get(id) ?? [])
    .filter(isWanted)
    .sort(order);
  const list: ConsoleRow[] = [];
  let next = 0;
  for (const row of former) {
    if (fresh.has(row.id)) continue;
    for (let other = incoming[next]; other !== undefined && order(other, row) <= 0; other = incoming[++next]) list.push(other);
    list.push(row);
  }
  return [...list, ...incoming.slice(next)];
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

/** Returns the names of the metadata members in use, the most common first. */
export function labelNames(): string[] {
  return [...labels]
    .filter(([, uses]) => uses > 0)
    .sort(([, a], [, b]) => b - a)
    .map(([name]) => name);
}
