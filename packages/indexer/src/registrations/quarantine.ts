// Files and registrations that could not be read or started: each is quarantined by name, with the reason in the log and in /services.
import { copyFileSync, mkdirSync, readdirSync, renameSync } from "node:fs";
import { join } from "node:path";
import type { Log } from "@svc/kit/log.ts";

export type Quarantined = { readonly name: string; readonly reason: string };

const FOLDER = "quarantine";
/** The maximum number of entries in an answer; the log has all. */
const MAX_NAMED = 100;

export class Quarantine {
  readonly #folder: string;
  readonly #log: Log;
  readonly #entries = new Map<string, string>();

  constructor(log: Log, folder: string) {
    this.#log = log;
    this.#folder = join(folder, FOLDER);
    for (const name of namesIn(this.#folder))
      this.#entries.set(join(FOLDER, name), "quarantined at an earlier start, whose log has the reason; repair or delete it");
  }

  get entries(): Quarantined[] {
    return [...this.#entries].slice(0, MAX_NAMED).map(([name, reason]) => ({ name, reason }));
  }

  /** Moves a file away so that the next start does not read it again; a later file of the same name replaces it. */
  move(path: string, name: string, reason: string): void {
    let named = join(FOLDER, name);
    try {
      mkdirSync(this.#folder, { recursive: true });
      renameSync(path, join(this.#folder, name));
    } catch (error) {
      named = name;
      this.#log.error({ err: error, file: path }, "an unreadable file could not be moved; it stays where it is");
    }
    this.note(named, reason);
  }

  /** Keeps a copy of a file whose other records are used. */
  copy(path: string, name: string): void {
    try {
      mkdirSync(this.#folder, { recursive: true });
      copyFileSync(path, join(this.#folder, name));
    } catch (error) {
      this.#log.error({ err: error, file: path }, "an unreadable file could not be copied");
    }
  }

  note(name: string, reason: string): void {
    this.#entries.set(name, reason);
    this.#log.error({ name, reason }, "quarantined; everything else starts");
  }

  forget(name: string): void {
    this.#entries.delete(name);
  }
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
