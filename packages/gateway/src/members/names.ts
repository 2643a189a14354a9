// What the names of snapshots mean over all nodes: of all that nodes told, the latest; nodes that know less are told.
import { call } from "@svc/contract/call.ts";
import { isLater, MAX_SETTLED_NAMES, type NameRecord, settleNames } from "@svc/contract/cluster.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Member } from "./member.ts";

const TIMEOUT_MS = 10_000;
const RETRY_MS = 2_000;
/** As many as a node keeps; of more, those that were freed first are forgotten. */
const MAX_NAMES = 100_000;

export type NamesOptions = { readonly apiKey: string; readonly log: Log };

export const withTag = (name: string): string => (name.includes(":") ? name : `${name}:default`);

export class Names {
  readonly #options: NamesOptions;
  readonly #latest = new Map<string, NameRecord>();
  /** By the snapshot that bears it. */
  readonly #ofSnapshot = new Map<string, string>();
  /** What each node is to be told. */
  readonly #owed = new Map<Member, Map<string, NameRecord>>();
  readonly #telling = new Set<Member>();

  constructor(options: NamesOptions) {
    this.#options = options;
  }

  /** By a name, with its tag or without; a record whose `snapshotID` is "" says that it was deleted. */
  of(asked: string): NameRecord | undefined {
    return this.#latest.get(withTag(asked));
  }

  /** The name that this snapshot bears. */
  nameOf(snapshotID: string): string | undefined {
    return this.#ofSnapshot.get(snapshotID);
  }

  /** False once another snapshot was given the name, or the one that bore it was deleted. */
  bears(name: string, snapshotID: string): boolean {
    const record = this.of(name);
    return record === undefined || record.snapshotID === snapshotID;
  }

  /** `isAll`: it is all that this node knows. `others`: nodes that are up. */
  take(member: Member, told: readonly NameRecord[], isAll: boolean, others: readonly Member[]): void {
    if (isAll) this.#owed.delete(member);
    const known = new Map(told.map((each) => [each.name, each]));
    const news = told.filter((each) => isLater(each, this.#latest.get(each.name)));
    for (const each of news) this.#put(each);
    for (const other of others) if (other !== member) this.#owe(other, news);
    const candidates = isAll ? this.#latest.values() : told.flatMap(({ name }) => this.#latest.get(name) ?? []);
    this.#owe(
      member,
      [...candidates].filter((each) => isLater(each, known.get(each.name))),
    );
  }

  forget(member: Member): void {
    this.#owed.delete(member);
  }

  #put(record: NameRecord): void {
    const before = this.#latest.get(record.name);
    if (before !== undefined && this.#ofSnapshot.get(before.snapshotID) === record.name) this.#ofSnapshot.delete(before.snapshotID);
    this.#latest.set(record.name, record);
    if (record.snapshotID !== "") this.#ofSnapshot.set(record.snapshotID, record.name);
    if (this.#latest.size <= MAX_NAMES * 1.1) return;
    const freed = [...this.#latest.values()].filter(({ snapshotID }) => snapshotID === "").sort((a, b) => a.atMs - b.atMs);
    for (const { name } of freed.slice(0, this.#latest.size - MAX_NAMES)) this.#latest.delete(name);
  }

  #owe(member: Member, records: readonly NameRecord[]): void {
    if (records.length === 0 || member.identity?.settlesNames !== true) return;
    const owed = this.#owed.get(member) ?? new Map<string, NameRecord>();
    for (const each of records) owed.set(each.name, each);
    this.#owed.set(member, owed);
    if (!this.#telling.has(member)) void this.#tell(member);
  }

  /** All that comes meanwhile goes along; a node that is lost is told when it is back. */
  async #tell(member: Member): Promise<void> {
    const { apiKey, log } = this.#options;
    this.#telling.add(member);
    for (let owed = this.#owed.get(member); owed !== undefined && owed.size > 0 && member.isUp; owed = this.#owed.get(member)) {
      const names = [...owed.values()].slice(0, MAX_SETTLED_NAMES);
      try {
        await call(settleNames, { names }, { baseURL: member.url, apiKey, signal: member.signal, timeoutMs: TIMEOUT_MS });
        for (const each of names) if (owed.get(each.name) === each) owed.delete(each.name);
      } catch (error) {
        if (!member.isUp) break;
        log.warn({ err: error, node: member.name, names: owed.size }, "a node could not be told what names of snapshots mean; retrying");
        await new Promise((done) => setTimeout(done, RETRY_MS).unref());
      }
    }
    this.#telling.delete(member);
  }
}
