// Snapshot names over all nodes are last-writer-wins registers; a node that lacks the latest record is sent it.
import { call } from "@svc/contract/call.ts";
import { isLater, MAX_SETTLED_NAMES, type NameRecord, settleNames } from "@svc/contract/cluster.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Member } from "./member.ts";

const TIMEOUT_MS = 10_000;
const RETRY_MS = 2_000;
/** The same bound as on a node; beyond it, the records of names that were freed first are dropped. */
const MAX_NAMES = 100_000;

export type NamesOptions = { readonly apiKey: string; readonly log: Log };

export const withTag = (name: string): string => (name.includes(":") ? name : `${name}:default`);

export class Names {
  readonly #options: NamesOptions;
  readonly #latest = new Map<string, NameRecord>();
  /** Names by the snapshot that has them. */
  readonly #ofSnapshot = new Map<string, string>();
  /** Records that each node still has to be sent. */
  readonly #owed = new Map<Member, Map<string, NameRecord>>();
  readonly #sending = new Set<Member>();

  constructor(options: NamesOptions) {
    this.#options = options;
  }

  /** Looks a record up by name, with or without tag; a `snapshotID` of "" means that the snapshot was deleted. */
  of(asked: string): NameRecord | undefined {
    return this.#latest.get(withTag(asked));
  }

  /** Returns the name of this snapshot. */
  nameOf(snapshotID: string): string | undefined {
    return this.#ofSnapshot.get(snapshotID);
  }

  /** Returns false once another snapshot was given the name, or the snapshot that had it was deleted. */
  bears(name: string, snapshotID: string): boolean {
    const record = this.of(name);
    return record === undefined || record.snapshotID === snapshotID;
  }

  /** `isAll` means that the records are all that this node knows. `others` are the nodes that are up. */
  take(member: Member, reported: readonly NameRecord[], isAll: boolean, others: readonly Member[]): void {
    if (isAll) this.#owed.delete(member);
    const known = new Map(reported.map((each) => [each.name, each]));
    const news = reported.filter((each) => isLater(each, this.#latest.get(each.name)));
    for (const each of news) this.#put(each);
    for (const other of others) if (other !== member) this.#owe(other, news);
    const candidates = isAll ? this.#latest.values() : reported.flatMap(({ name }) => this.#latest.get(name) ?? []);
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
    if (!this.#sending.has(member)) void this.#send(member);
  }

  /** Also sends records that are added meanwhile; a lost node is sent its records when it is back. */
  async #send(member: Member): Promise<void> {
    const { apiKey, log } = this.#options;
    this.#sending.add(member);
    for (let owed = this.#owed.get(member); owed !== undefined && owed.size > 0 && member.isUp; owed = this.#owed.get(member)) {
      const names = [...owed.values()].slice(0, MAX_SETTLED_NAMES);
      try {
        await call(settleNames, { names }, { baseURL: member.url, apiKey, send: member.peers.send, signal: member.signal, timeoutMs: TIMEOUT_MS });
        for (const each of names) if (owed.get(each.name) === each) owed.delete(each.name);
      } catch (error) {
        if (!member.isUp) break;
        log.warn({ err: error, node: member.name, names: owed.size }, "records of snapshot names could not be sent to a node; retrying");
        await new Promise((done) => setTimeout(done, RETRY_MS).unref());
      }
    }
    this.#sending.delete(member);
  }
}
