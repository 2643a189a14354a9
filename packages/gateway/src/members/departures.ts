// Sandboxes that are moving from one node to another: requests for them wait until the sandbox has arrived or stays.
import type { Member } from "./member.ts";

/** The stream of the destination node may lag behind this long. */
const ARRIVAL_MS = 2_000;

type Departure = { readonly from: Member; readonly over: PromiseWithResolvers<void>; timer?: NodeJS.Timeout };

export class Departures {
  readonly #under = new Map<string, Departure>();

  begin(sandboxID: string, from: Member): void {
    if (!this.#under.has(sandboxID)) this.#under.set(sandboxID, { from, over: Promise.withResolvers<void>() });
  }

  /** The sandbox has left `from`. The departure ends when another node's stream reports it running or paused, or after a timeout. */
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

  /** Ends the departures from a lost node; etcd says where those sandboxes are. */
  lose(from: Member): void {
    for (const [sandboxID, departure] of this.#under) if (departure.from === from) this.end(sandboxID);
  }

  /** Resolves when the sandbox has arrived or stays; undefined if it is not moving. */
  of(sandboxID: string): Promise<void> | undefined {
    return this.#under.get(sandboxID)?.over.promise;
  }
}
