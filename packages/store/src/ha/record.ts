// One master's access to the leadership record: reads it, changes it by compare-and-set, and watches it.
import { Failure } from "@svc/contract/failures.ts";
import type { Etcd } from "@svc/kit/etcd/client.ts";
import type { KeyValue } from "@svc/kit/etcd/wire.ts";
import { changeOf, clusterPrefix, type Keys, type Known, knownFrom, type Leadership, leadershipKey, viewKey } from "./leadership.ts";

export type Changed =
  /** Our change is written; `revision` is that of the transaction. */
  | { readonly outcome: "written"; readonly known: Known }
  /** Another master wrote first; `known` is its record. */
  | { readonly outcome: "lost"; readonly known: Known | undefined }
  /** etcd did not answer, so the change may or may not be written. */
  | { readonly outcome: "unknown"; readonly reason: string };

export class Record {
  readonly #etcd: Etcd;
  readonly #keys: Keys;
  readonly #key: string;
  /** The record as last read or written. */
  known: Known | undefined;
  /** The revision at which the leader's address was written: Mooncake's clients call it the view's version. */
  view = 0n;

  constructor(etcd: Etcd, keys: Keys) {
    this.#etcd = etcd;
    this.#keys = keys;
    this.#key = leadershipKey(keys.brands[0] as string, keys.clusterID);
  }

  /** @throws ETCD_UNAVAILABLE */
  async read(): Promise<Known | undefined> {
    this.known = knownFrom(await this.#etcd.get(this.#key));
    return this.known;
  }

  /** Writes `next` if the record is still `from`. */
  async change(from: Known | undefined, next: Leadership): Promise<Changed> {
    try {
      const { succeeded, revision, entries } = await this.#etcd.transact(changeOf(this.#keys, from, next));
      if (succeeded) {
        this.known = { leadership: next, revision };
        if (from?.leadership.epoch !== next.epoch) this.view = revision;
        return { outcome: "written", known: this.known };
      }
      this.known = knownFrom(entries[0]?.[0]);
      return { outcome: "lost", known: this.known };
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      return { outcome: "unknown", reason: error.message };
    }
  }

  /** Reports each state of the record; undefined if it was deleted. */
  watch(onChange: (known: Known | undefined) => void): { close(): Promise<void> } {
    const brand = this.#keys.brands[0] as string;
    const [prefix, view] = [clusterPrefix(brand, this.#keys.clusterID), viewKey(brand, this.#keys.clusterID)];
    const see = ({ key, modRevision }: KeyValue) => {
      if (key === view) this.view = modRevision;
    };
    return this.#etcd.watch(prefix, {
      onAll: (entries) => {
        entries.forEach(see);
        onChange(knownFrom(entries.find(({ key }) => key === this.#key)));
      },
      onEvents: (events) => {
        for (const event of events) {
          if (event.type === "put") see(event.entry);
          if (event.key === this.#key) onChange(event.type === "put" ? knownFrom(event.entry) : undefined);
        }
      },
    });
  }
}
