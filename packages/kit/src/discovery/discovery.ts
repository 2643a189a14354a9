// Brings the engines of all sources together, each once, and reports changes.
import type { Log } from "../log.ts";
import type { NamedEntry } from "./engine-entry.ts";
import { readSource } from "./read-source.ts";
import type { OpenSource, Source } from "./source.ts";

export type DiscoveryOptions = {
  /** As given by `--discover`. */
  readonly sources: readonly string[];
  readonly log: Log;
  /** Called with all engines whenever one of them has changed. If two sources use one name, the engine of the first source counts. */
  readonly onEntries: (entries: readonly NamedEntry[]) => void;
};

export class Discovery {
  readonly #options: DiscoveryOptions;
  readonly #found: (readonly NamedEntry[] | undefined)[];
  readonly #troubles = new Map<string, string>();
  #opened: Source[] = [];

  constructor(options: DiscoveryOptions) {
    this.#options = options;
    this.#found = options.sources.map(() => undefined);
  }

  /** True once each source has been read: an engine that none of them names is gone. */
  get isComplete(): boolean {
    return this.#found.every((entries) => entries !== undefined);
  }

  /** Sources that cannot be read, and why. */
  get troubles(): ReadonlyMap<string, string> {
    return this.#troubles;
  }

  /** @throws SETTING_INVALID for a source that is not one. */
  begin(): void {
    const { sources, log } = this.#options;
    const opening: OpenSource[] = sources.map(readSource);
    this.#opened = opening.map((open, at) => {
      const source = sources[at] ?? "";
      return open({
        log,
        onEntries: (entries) => {
          if (this.#troubles.delete(source)) log.info({ source }, "the source of engines can be read again");
          this.#found[at] = entries;
          this.#report();
        },
        onTrouble: (reason) => {
          if (this.#troubles.get(source) !== reason) log.warn({ source, reason }, "the source of engines cannot be read: what it said last stays");
          this.#troubles.set(source, reason);
        },
      });
    });
  }

  async close(): Promise<void> {
    await Promise.all(this.#opened.map((source) => source.close()));
  }

  #report(): void {
    const byName = new Map<string, NamedEntry>();
    for (const entry of this.#found.flatMap((entries) => entries ?? [])) if (!byName.has(entry.name)) byName.set(entry.name, entry);
    this.#options.onEntries([...byName.values()]);
  }
}
