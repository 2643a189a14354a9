// Items of this home that the node cannot use: each is listed with its reason in the log and, through a file, in `svc doctor`, and kept until a
// client deletes it.
import { readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import type { Log } from "@svc/kit/log.ts";
import { z } from "zod";

const quarantine = z.object({ kind: z.enum(["sandbox", "snapshot", "template", "build", "layer", "driver"]), name: z.string(), reason: z.string() });
const file = z.array(quarantine);
export type Quarantined = z.output<typeof quarantine>;

export interface Quarantine {
  /** Replaces the list of an earlier node; called once this node holds the home's lock. */
  begin(): void;
  add(quarantine: Quarantined): void;
  /** As `add`, for an unreadable row: its references are unknown, so nothing may be swept as unused. */
  addUnreadable(quarantine: Quarantined): void;
  /** Removes an item that can be used again or is gone. */
  drop(kind: Quarantined["kind"], name: string): void;
  find(kind: Quarantined["kind"], name: string): Quarantined | undefined;
  all(): Quarantined[];
  /** True while an unreadable row is among the items. */
  readonly isBlind: boolean;
}

export const QUARANTINE_FILE = "quarantine.json";

export function openQuarantine(path: string, log: Log): Quarantine {
  // I21
  const known = new Map<string, Quarantined>();
  const unreadable = new Set<string>();
  let isWriting = false;
  const keyOf = (kind: string, name: string) => `${kind} ${name}`;

  function write(): void {
    isWriting = false;
    try {
      if (known.size === 0) {
        rmSync(path, { force: true });
        return;
      }
      writeFileSync(`${path}.new`, `${JSON.stringify([...known.values()], null, 2)}\n`, { mode: 0o600 });
      renameSync(`${path}.new`, path);
    } catch (error) {
      log.warn({ err: error, path }, "the list of what is quarantined could not be written; this log has it");
    }
  }
  function changed(): void {
    if (isWriting) return;
    isWriting = true;
    setImmediate(write);
  }
  function add(each: Quarantined): void {
    const key = keyOf(each.kind, each.name);
    if (known.get(key)?.reason === each.reason) return;
    known.set(key, each);
    log.error({ kind: each.kind, name: each.name, reason: each.reason }, `${each.kind} ${each.name} is quarantined: ${each.reason}`);
    changed();
  }

  return {
    begin: changed,
    add,
    addUnreadable(each) {
      unreadable.add(keyOf(each.kind, each.name));
      add(each);
    },
    drop(kind, name) {
      unreadable.delete(keyOf(kind, name));
      if (!known.delete(keyOf(kind, name))) return;
      log.info({ kind, name }, `${kind} ${name} is no longer quarantined`);
      changed();
    },
    find: (kind, name) => known.get(keyOf(kind, name)),
    all: () => [...known.values()],
    get isBlind() {
      return unreadable.size > 0;
    },
  };
}

/** Returns the items that the home's node last quarantined; empty where no node ran. */
export function readQuarantine(path: string): Quarantined[] {
  try {
    return file.parse(JSON.parse(readFileSync(path, "utf8")));
  } catch {
    return [];
  }
}
