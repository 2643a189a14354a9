// Lists, from etcd's records, the sandboxes, snapshots and templates that are only in object storage while no node that answers has them.
import { call } from "@svc/contract/call.ts";
import { clusterOperations } from "@svc/contract/cluster.ts";
import type { SnapshotInfo } from "@svc/contract/lifecycle.ts";
import { bearsName, type SandboxFilter, sandboxMatcher } from "@svc/contract/list-filter.ts";
import { type ListedSandbox, listedSandbox } from "@svc/contract/sandbox.ts";
import type { SharedSandbox, StoredTemplate } from "@svc/contract/shared-records.ts";
import type { ListedTemplate } from "@svc/contract/template.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Members } from "./members.ts";

export type StoredOnlyOptions = { readonly members: Members; readonly apiKey: string; readonly log: Log };

/** `missing` names the nodes of sandboxes whose details neither etcd's record nor object storage gave. */
export type StoredSandboxes = { readonly items: readonly ListedSandbox[]; readonly missing: readonly string[] };

/** Bounds the reads of sandboxes whose record lacks the details: those with much metadata, or written by a node of an earlier version. */
const READS_AT_ONCE = 16;
const READS_MS = 5_000;
const MAX_READ = 10_000;

export class StoredOnly {
  // I54
  readonly #options: StoredOnlyOptions;
  /** Keyed by manifest, since a manifest identifies one state of one sandbox. */
  readonly #read = new Map<string, ListedSandbox>();

  constructor(options: StoredOnlyOptions) {
    this.#options = options;
  }

  /** Returns the paused sandboxes that match the query. */
  async sandboxes(query: SandboxFilter): Promise<StoredSandboxes> {
    const records = [...this.#options.members.moved.values()].filter((record) => this.#isStoredOnly(record));
    const missing = await this.#readUnlisted(records.filter(({ listed }) => listed === undefined));
    const isMeant = sandboxMatcher(query);
    const items = records.flatMap(({ listed, manifest = "" }) => {
      const shown = listed ?? this.#read.get(manifest);
      if (shown === undefined) return [];
      const { state, metadata = {}, startedAt, templateID, alias } = shown;
      return isMeant({ state, metadata, startedAtMs: Date.parse(startedAt), templateID, alias }) ? [shown] : [];
    });
    return { items, missing };
  }

  snapshots(query: { readonly sandboxID?: string | undefined; readonly name?: string | undefined }): SnapshotInfo[] {
    const isMeant = ({ sandboxID, names }: SnapshotInfo) =>
      (query.sandboxID === undefined || query.sandboxID === sandboxID) && (query.name === undefined || bearsName(names, query.name));
    const { stored, names } = this.#options.members;
    const listed = this.#withoutNode(stored.snapshots).map((each) => ({ ...each, names: each.names.filter((name) => names.bears(name, each.snapshotID)) }));
    return listed.filter(isMeant);
  }

  templates(): ListedTemplate[] {
    return this.#withoutNode(this.#options.members.stored.templates);
  }

  /** Looks a snapshot up by id, name:tag or name (which means name:default); of several the newest is returned. */
  snapshot(asked: string): SnapshotInfo | undefined {
    const known = this.#options.members.stored.snapshots.get(asked);
    if (known !== undefined) return known.listed;
    const name = asked.includes(":") ? asked : `${asked}:default`;
    return this.snapshots({ name }).sort((a, b) => Date.parse(b.createdAt) - Date.parse(a.createdAt))[0];
  }

  /** Looks a template up by id or name, with or without tag; the record also names the node that built it. */
  template(asked: string): StoredTemplate | undefined {
    const [name = ""] = asked.split(":");
    const { templates } = this.#options.members.stored;
    return templates.get(name) ?? [...templates.values()].find(({ listed }) => listed.names.includes(name));
  }

  #isStoredOnly({ sandboxID, nodeID, manifest }: SharedSandbox): boolean {
    const { members } = this.#options;
    if (manifest === undefined || members.onRecord(nodeID)?.isUp === true) return false;
    const holder = members.holderOf(sandboxID);
    return holder === undefined || (!holder.isUp && holder.paused.has(sandboxID));
  }

  #withoutNode<T>(records: ReadonlyMap<string, { readonly nodeID: string; readonly listed: T }>): T[] {
    const { members } = this.#options;
    return [...records.values()].filter(({ nodeID }) => members.onRecord(nodeID)?.isUp !== true).map(({ listed }) => listed);
  }

  /** Returns the nodes of sandboxes that could not be read. */
  async #readUnlisted(records: readonly SharedSandbox[]): Promise<string[]> {
    const { members, apiKey, log } = this.#options;
    const missing = new Set<string>();
    const signal = AbortSignal.timeout(READS_MS);
    const waiting = records.filter(({ manifest = "" }) => !this.#read.has(manifest)).values();
    const reader = async () => {
      for (const { nodeID, manifest = "" } of waiting) {
        const [member] = members.up;
        try {
          if (member === undefined || signal.aborted) throw new Error("no node answered in time");
          const detail = await call(
            clusterOperations.readSandbox,
            { manifest },
            { baseURL: member.url, apiKey, send: member.peers.send, signal, timeoutMs: READS_MS },
          );
          this.#keep(manifest, listedSandbox.parse(detail));
        } catch (error) {
          missing.add(nodeID);
          log.warn({ err: error, manifest, node: nodeID }, "a paused sandbox in object storage could not be read: lists lack it");
        }
      }
    };
    await Promise.all(Array.from({ length: READS_AT_ONCE }, reader));
    return [...missing];
  }

  #keep(manifest: string, shown: ListedSandbox): void {
    this.#read.set(manifest, shown);
    if (this.#read.size > MAX_READ) this.#read.delete(this.#read.keys().next().value as string);
  }
}
