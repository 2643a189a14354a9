// Sandboxes on their way from one node to another: requests for them wait until they have arrived, or stay.
import type { Member } from "./member.ts";

/** The stream of the node that it went to may be a moment behind. */
const ARRIVAL_MS = 2_000;

type Departure = { readonly from: Member; readonly over: PromiseWithResolvers<void>; timer?: NodeJS.Timeout };

export class Departures {
  readonly #under = new Map<string, Departure>();

  begin(sandboxID: string, from: Member): void {
    if (!this.#under.has(sandboxID)) this.#under.set(sandboxID, { from, over: Promise.withResolvers<void>() });
  }

  /** It is not on `from` any more: it is over when another node says that it runs there, or is paused. */
  left(sandboxID: string, from: Member): void {
    const departure = this.#under.get(sandboxID);
    if (departure?.from === from) departure.timer ??= setTimeout(() => this.end(sandboxID), ARRIVAL_MS).unref();
  }

  end(sandboxID: string): void {
    const departure = this.#under.get(sandboxID);
    if (departure === undefined) return;
    clearTimeout(departure.timer);
    this.#under.delete(sandboxID);
    departure.over.resolve();
  }

  /** What becomes of those that were leaving it is etcd's to say. */
  lose(from: Member): void {
    for (const [sandboxID, departure] of this.#under) if (departure.from === from) this.end(sandboxID);
  }

  /** Resolves when it is over; undefined for one that is not leaving. */
  of(sandboxID: string): Promise<void> | undefined {
    return this.#under.get(sandboxID)?.over.promise;
  }
}
