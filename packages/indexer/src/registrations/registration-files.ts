// Registrations on disk, one file each: adding one needs space for it alone, removing one needs none, and a damaged one affects no other.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Registration } from "@svc/contract/indexer.ts";
import { removeDurably, writeDurably } from "./disk.ts";
import type { Quarantine } from "./quarantine.ts";
import { type Identity, keyOf } from "./register-input.ts";

const SUFFIX = ".json";

export type Kept = {
  readonly registrations: Registration[];
  /** Names of files that could not be read; a snapshot may have their registrations. */
  readonly unreadable: ReadonlySet<string>;
  /** True if the single file of former versions could not be read. */
  readonly formerUnreadable: boolean;
};

export class RegistrationFiles {
  readonly #folder: string;
  readonly #former: string;
  readonly #quarantine: Quarantine;
  readonly #read: (input: unknown) => Registration;

  /** `read` checks a record and throws if it is not valid. */
  constructor(folder: string, quarantine: Quarantine, read: (input: unknown) => Registration) {
    this.#folder = join(folder, "registrations");
    this.#former = join(folder, "registrations.json");
    this.#quarantine = quarantine;
    this.#read = read;
  }

  static nameOf(registration: Identity): string {
    return createHash("sha256").update(keyOf(registration)).digest("hex").slice(0, 32) + SUFFIX;
  }

  /** Loads the registrations of the former process. */
  load(): Kept {
    const registrations: Registration[] = [];
    const unreadable = new Set<string>();
    for (const name of filesIn(this.#folder)) {
      const path = join(this.#folder, name);
      // This is the partial file of an interrupted write.
      if (!name.endsWith(SUFFIX)) {
        rmSync(path, { force: true });
        continue;
      }
      try {
        const registration = this.#read(JSON.parse(readFileSync(path, "utf8")));
        // Former versions named the files of stores otherwise.
        const named = RegistrationFiles.nameOf(registration);
        if (name !== named) renameSync(path, join(this.#folder, named));
        registrations.push(registration);
      } catch (error) {
        unreadable.add(name);
        this.#quarantine.move(path, name, `this registration cannot be read: ${(error as Error).message}`);
      }
    }
    return { registrations, unreadable, formerUnreadable: !this.#loadFormer(registrations) };
  }

  has(registration: Registration): boolean {
    return existsSync(join(this.#folder, RegistrationFiles.nameOf(registration)));
  }

  async keep(registration: Registration): Promise<void> {
    // The start may not have created the folder because the disk was full.
    mkdirSync(this.#folder, { recursive: true });
    await writeDurably(join(this.#folder, RegistrationFiles.nameOf(registration)), `${JSON.stringify(registration, null, 2)}\n`);
  }

  async forget(registration: Registration): Promise<void> {
    await removeDurably(join(this.#folder, RegistrationFiles.nameOf(registration)));
  }

  /** Removes the former file once all its records have files of their own. */
  async forgetFormer(): Promise<void> {
    await removeDurably(this.#former);
  }

  #loadFormer(into: Registration[]): boolean {
    let records: unknown;
    try {
      records = JSON.parse(readFileSync(this.#former, "utf8"));
      if (!Array.isArray(records)) throw new Error("expected a list of registrations");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return true;
      this.#quarantine.move(this.#former, "registrations.json", `the registrations cannot be read: ${(error as Error).message}`);
      return false;
    }
    const known = new Set(into.map(keyOf));
    const odd = false;
    for (const [at, record] of (records as unknown[]).entries()) {
      try {
        const registration = this.#read(record);
        if (!known.has(keyOf(registration))) into.push(registration);
      } catch (error) {
        this.#quarantine.note(
          `registrations.json, record ${at}`,
          `this registration cannot be read: ${(error as Error).message}; it was ${JSON.stringify(record).slice(0, 500)}`,
        );
      }
    }
    if (odd) this.#quarantine.copy(this.#former, "registrations.json");
    return true;
  }
}

function filesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
