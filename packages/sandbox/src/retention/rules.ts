// Retention rules: which snapshots, paused sandboxes and builds a node removes by itself, by age, number, bytes and labels.
import { fail } from "@svc/contract/failures.ts";

/** Something that a rule may remove. */
export type Item = {
  readonly id: string;
  readonly names: readonly string[];
  readonly labels: Readonly<Record<string, string>>;
  /** When it was made, or paused. */
  readonly atMs: number;
  readonly sizeBytes: number;
  /** A description of its user; the item is then kept whatever a rule says, and counts. */
  readonly neededBy: string | undefined;
  /** `count` counts within a group; all items are one group by default. */
  readonly group?: string;
};

export type Rule = {
  /** As in the settings, for people. */
  readonly text: string;
  readonly limit: { readonly kind: "age" | "count" | "bytes"; readonly value: number };
  readonly labels: readonly (readonly [name: string, value: string])[];
  readonly isNamed: boolean | undefined;
};

export type Selected = { readonly item: Item; readonly rule: string };

const seconds = { s: 1, m: 60, h: 3600, d: 86_400 } as const;
const bytes = { B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12 } as const;
const EXPECTED = "expected age=30d (s, m, h, d), count=100 or bytes=50GB, and any of named, unnamed and label:KEY=VALUE, separated by spaces";

/** Parses `age=30d unnamed label:env=dev`. @throws SETTING_INVALID. */
export function parseRule(text: string): Rule {
  const refuse = (): never => fail("SETTING_INVALID", `${EXPECTED}; got ${JSON.stringify(text)}`);
  const limits: Rule["limit"][] = [];
  const labels: [string, string][] = [];
  const named: boolean[] = [];
  for (const word of text.trim().split(/ +/)) {
    const [, age, unit] = /^age=(\d+(?:\.\d+)?)([smhd])$/.exec(word) ?? [];
    const [, size, scale] = /^bytes=(\d+(?:\.\d+)?)(B|kB|MB|GB|TB)$/.exec(word) ?? [];
    const [, number] = /^count=(\d+)$/.exec(word) ?? [];
    const [, name, value] = /^label:([^=]+)=(.*)$/.exec(word) ?? [];
    if (age !== undefined) limits.push({ kind: "age", value: Number(age) * seconds[unit as keyof typeof seconds] * 1000 });
    else if (size !== undefined) limits.push({ kind: "bytes", value: Number(size) * bytes[scale as keyof typeof bytes] });
    else if (number !== undefined) limits.push({ kind: "count", value: Number(number) });
    else if (name !== undefined) labels.push([name, value ?? ""]);
    else if (word === "named" || word === "unnamed") named.push(word === "named");
    else refuse();
  }
  const [limit] = limits;
  if (limit === undefined || limits.length > 1 || named.length > 1) return refuse();
  return { text, limit, labels, isNamed: named[0] };
}

export function isRule(text: string): boolean {
  try {
    parseRule(text);
    return true;
  } catch {
    return false;
  }
}

/** Returns what the rules remove: an item that any rule names. Among those that a rule is about, the newest are kept first. */
export function selectedBy(rules: readonly Rule[], items: readonly Item[], nowMs: number): Selected[] {
  const selected = new Map<string, Selected>();
  const newestFirst = items.toSorted((a, b) => b.atMs - a.atMs || (a.id < b.id ? -1 : 1));
  for (const rule of rules) {
    const kept = new Map<string, number>();
    for (const item of newestFirst.filter((each) => isAbout(rule, each))) {
      const { kind, value } = rule.limit;
      const group = item.group ?? "";
      const sum = (kept.get(group) ?? 0) + (kind === "bytes" ? item.sizeBytes : 1);
      const isOver = kind === "age" ? nowMs - item.atMs > value : sum > value;
      // A larger item that does not fit leaves room for smaller ones that are older: age order alone must decide, so its bytes count, too.
      if (kind !== "age") kept.set(group, sum);
      if (isOver && item.neededBy === undefined && !selected.has(item.id)) selected.set(item.id, { item, rule: rule.text });
    }
  }
  return [...selected.values()];
}

function isAbout({ labels, isNamed }: Rule, item: Item): boolean {
  if (isNamed !== undefined && item.names.length > 0 !== isNamed) return false;
  return labels.every(([name, value]) => Object.hasOwn(item.labels, name) && item.labels[name] === value);
}
