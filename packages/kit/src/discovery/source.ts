// Parts that all sources of discovery share: what they report, and how their options are read.
import type { Log } from "../log.ts";
import type { NamedEntry } from "./engine-entry.ts";

export type SourceEvents = {
  /** Called with all engines that the source has now. While the source cannot be read it is not called, so the last list stays valid. */
  readonly onEntries: (entries: readonly NamedEntry[]) => void;
  /** Called with the reason when the source cannot be read; the next `onEntries` ends that state. */
  readonly onTrouble: (reason: string) => void;
  readonly log: Log;
};
export type Source = { close(): Promise<void> };
export type OpenSource = (events: SourceEvents) => Source;

/** Parses an option that is a port. */
export function portOf(options: URLSearchParams, name: string, otherwise: number | undefined, bad: (why: string) => never): number | undefined {
  const text = options.get(name);
  if (text === null) return otherwise;
  const port = Number(text);
  return /^\d{1,5}$/.test(text) && port > 0 && port < 65_536 ? port : bad(`${name}: expected a port, got ${JSON.stringify(text)}`);
}

/** Refuses options that a kind of source does not have. */
export function onlyOptions(options: URLSearchParams, known: readonly string[], bad: (why: string) => never): void {
  for (const name of options.keys()) if (!known.includes(name)) bad(`there is no option ${name}; the options are ${known.join(", ")}`);
}
