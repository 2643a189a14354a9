// Named keys: found by hash in one look-up, created, rotated and revoked; streams that are open under a key end with it.
import { randomUUID } from "node:crypto";
import { BlockList, isIPv6 } from "node:net";
import { Failure, fail } from "@svc/contract/failures.ts";
import { type KeyRecord, MAX_KEYS } from "@svc/contract/keys.ts";
import type { Quotas, TenantRecord } from "@svc/contract/tenants.ts";
import type { Log } from "../log.ts";
import { hashOfKey, isKeyForm, type MadeKey, makeKey } from "./key-secret.ts";
import type { TenantPrincipal } from "./principal.ts";
import { addressesOf } from "./source-addresses.ts";

/** Where records are kept. Changes of other servers arrive through `open`'s callbacks, and so may this server's own. */
export interface KeyStore {
  open(changed: KeyChanges): void;
  /** Durable when it resolves. `previous` is the record that it replaces. @throws DISK_FULL, ETCD_UNAVAILABLE, INVALID_REQUEST. */
  put(record: KeyRecord, previous: KeyRecord | undefined): Promise<void>;
  remove(record: KeyRecord): Promise<void>;
  putUse(id: string, atMs: number): Promise<void>;
  putTenant(record: TenantRecord): Promise<void>;
  close(): Promise<void>;
}

export type KeyChanges = {
  all(records: readonly KeyRecord[]): void;
  one(record: KeyRecord): void;
  gone(id: string): void;
  used(id: string, atMs: number): void;
  tenants(records: readonly TenantRecord[]): void;
  tenant(record: TenantRecord): void;
};

export type KeyState = "active" | "expired" | "revoked";
export type NewKey = Pick<KeyRecord, "name" | "tenant" | "role" | "expiresAtMs" | "sourceAddresses">;
export type KeyChange = Partial<Pick<KeyRecord, "name" | "role" | "expiresAtMs" | "sourceAddresses">>;
export type Made = { readonly record: KeyRecord; readonly made: MadeKey };

type Known = { readonly record: KeyRecord; readonly addresses: BlockList | undefined };
type Secret = KeyRecord["secrets"][number];

const HOUR_MS = 3_600_000;
/** A revoked key is remembered for so long, so that its holder reads "revoked" and not "unknown". */
const REVOKED_KEPT_MS = 30 * 24 * HOUR_MS;
/** The ends of keys by time are noticed at this interval while streams are open under named keys. */
const SWEEP_MS = 1_000;
const notTheKey = "the API key in X-API-Key is not this deployment's";

export class Keys {
  readonly #store: KeyStore;
  readonly #log: Log;
  readonly #nowMs: () => number;
  readonly #byID = new Map<string, Known>();
  /** The key is the secret's hash. The time of a lookup reveals nothing, because nobody can choose that hash. */
  readonly #bySecret = new Map<string, { readonly id: string; readonly secret: Secret }>();
  readonly #uses = new Map<string, number>();
  readonly #quotas = new Map<string, Quotas>();
  /** Callbacks of open streams, by key. */
  readonly #streams = new Map<string, Set<() => void>>();
  #sweep: NodeJS.Timeout | undefined;

  constructor({ store, log, nowMs = Date.now }: { readonly store: KeyStore; readonly log: Log; readonly nowMs?: () => number }) {
    this.#store = store;
    this.#log = log;
    this.#nowMs = nowMs;
    store.open({
      all: (records) => {
        const there = new Set(records.map(({ id }) => id));
        for (const id of [...this.#byID.keys()]) if (!there.has(id)) this.#drop(id);
        for (const record of records) this.#take(record);
      },
      one: (record) => this.#take(record),
      gone: (id) => this.#drop(id),
      tenants: (records) => {
        this.#quotas.clear();
        for (const { tenant, quotas } of records) this.#quotas.set(tenant, quotas);
      },
      tenant: ({ tenant, quotas }) => void this.#quotas.set(tenant, quotas),
      used: (id, atMs) => void this.#uses.set(id, Math.max(atMs, this.#uses.get(id) ?? 0)),
    });
  }

  /** The number of named keys; 0 makes every other question free. */
  get size(): number {
    return this.#byID.size;
  }

  /** Returns true for the text of any named key, valid or not: no sandbox may see one. */
  knows(text: string): boolean {
    return this.#byID.size > 0 && isKeyForm(text) && this.#bySecret.get(hashOfKey(text)) !== undefined;
  }

  /**
   * Returns whom the key stands for. A key that is valid elsewhere gets the answer of an unknown one: a thief learns nothing from another
   * address, while the holder of an expired or revoked key already knows that it was one.
   * @throws UNAUTHENTICATED.
   */
  authenticate(given: string, client: string): TenantPrincipal {
    const found = this.#byID.size > 0 && isKeyForm(given) ? this.#bySecret.get(hashOfKey(given)) : undefined;
    const known = found === undefined ? undefined : this.#byID.get(found.id);
    if (found === undefined || known === undefined) return refuse("unknown", notTheKey);
    const { record, addresses } = known;
    if (addresses !== undefined && !addresses.check(client, isIPv6(client) ? "ipv6" : "ipv4")) {
      this.#log.warn({ keyID: record.id, tenant: record.tenant, client }, "a named key was refused: it came from another address than its own");
      return refuse("unknown", notTheKey);
    }
    const now = this.#nowMs();
    const state = stateOf(record, now);
    if (state === "revoked")
      return refuse("revoked", `the API key '${record.name}' was revoked; ask the administrator of tenant '${record.tenant}' for another`);
    if (state === "expired") return refuse("expired", `the API key '${record.name}' expired at ${new Date(record.expiresAtMs ?? 0).toISOString()}`);
    if (found.secret.untilMs !== undefined && found.secret.untilMs <= now)
      return refuse("rotated", `the API key '${record.name}' was rotated, and this is its earlier secret: use the new one`);
    this.#noteUse(record.id, now);
    return { kind: "tenant", tenant: record.tenant, role: record.role, keyID: record.id, isRelayed: false };
  }

  /** All keys, oldest first. */
  all(): KeyRecord[] {
    return [...this.#byID.values()].map(({ record }) => record).sort((a, b) => a.createdAtMs - b.createdAtMs || (a.id < b.id ? -1 : 1));
  }

  get(id: string): KeyRecord | undefined {
    return this.#byID.get(id)?.record;
  }

  /** Returns undefined for a tenant without any limit. */
  quotasOf(tenant: string): Quotas | undefined {
    return this.#quotas.get(tenant);
  }

  async setQuotas(tenant: string, quotas: Quotas): Promise<void> {
    await this.#store.putTenant({ version: 1, tenant, quotas });
    this.#quotas.set(tenant, quotas);
  }

  /** The names of all tenants that have keys or quotas. */
  tenants(): string[] {
    return [...new Set([...this.#quotas.keys(), ...this.all().map(({ tenant }) => tenant)])].sort();
  }

  lastUsedMs(id: string): number | undefined {
    return this.#uses.get(id);
  }

  stateOf(record: KeyRecord): KeyState {
    return stateOf(record, this.#nowMs());
  }

  /** @throws TOO_MANY_REQUESTS, DISK_FULL, ETCD_UNAVAILABLE. */
  async create(asked: NewKey): Promise<Made> {
    await this.#prune();
    if (this.#byID.size >= MAX_KEYS) fail("TOO_MANY_REQUESTS", `there are ${MAX_KEYS} named keys already, the maximum: revoke some`);
    const made = makeKey();
    const record: KeyRecord = { version: 1, id: randomUUID(), ...present(asked), secrets: [made.secret], createdAtMs: this.#nowMs() } as KeyRecord;
    addressesOf(record.sourceAddresses);
    await this.#write(record, undefined);
    return { record, made };
  }

  /** @throws INVALID_REQUEST for a revoked key. */
  async update(record: KeyRecord, change: KeyChange): Promise<KeyRecord> {
    this.#refuseRevoked(record);
    const next = present({ ...record, ...change }) as KeyRecord;
    addressesOf(next.sourceAddresses);
    await this.#write(next, record);
    return next;
  }

  /** The secret before stays valid for the overlap; one from an earlier rotation ends now. @throws INVALID_REQUEST for a revoked key. */
  async rotate(record: KeyRecord, overlapMs: number): Promise<Made> {
    this.#refuseRevoked(record);
    const now = this.#nowMs();
    const made = makeKey();
    const [newest] = record.secrets;
    const kept = newest === undefined || overlapMs === 0 ? [] : [{ ...newest, untilMs: now + overlapMs }];
    const next: KeyRecord = { ...record, secrets: [made.secret, ...kept] };
    await this.#write(next, record);
    return { record: next, made };
  }

  /** Streams under the key have ended, here, when this resolves; on other servers within moments. */
  async revoke(record: KeyRecord): Promise<void> {
    if (record.revokedAtMs !== undefined) return;
    await this.#write({ ...record, revokedAtMs: this.#nowMs() }, record);
  }

  /** Calls `onEnd` once, when the key is revoked, deleted or expired; returns a function that stops that. */
  whileValid(id: string, onEnd: () => void): () => void {
    const streams = this.#streams.get(id) ?? new Set();
    this.#streams.set(id, streams.add(onEnd));
    this.#sweep ??= setInterval(() => {
      for (const each of [...this.#streams.keys()]) this.#endStreams(each);
    }, SWEEP_MS).unref();
    return () => {
      streams.delete(onEnd);
      if (streams.size === 0) this.#streams.delete(id);
      if (this.#streams.size > 0) return;
      clearInterval(this.#sweep);
      this.#sweep = undefined;
    };
  }

  async close(): Promise<void> {
    clearInterval(this.#sweep);
    await this.#store.close();
  }

  #refuseRevoked(record: KeyRecord): void {
    if (record.revokedAtMs !== undefined) fail("INVALID_REQUEST", `key '${record.name}' (${record.id}) was revoked: create another`);
  }

  async #write(record: KeyRecord, previous: KeyRecord | undefined): Promise<void> {
    await this.#store.put(record, previous);
    this.#take(record);
  }

  #take(record: KeyRecord): void {
    const before = this.#byID.get(record.id)?.record;
    for (const { hash, sdkHash } of before?.secrets ?? []) {
      this.#bySecret.delete(hash);
      this.#bySecret.delete(sdkHash);
    }
    let addresses: BlockList | undefined;
    try {
      addresses = addressesOf(record.sourceAddresses);
    } catch (error) {
      // A range that this version cannot read must not become "from everywhere".
      this.#log.error({ err: error, keyID: record.id }, "the source addresses of a named key cannot be read: the key is refused");
      addresses = new BlockList();
    }
    this.#byID.set(record.id, { record, addresses });
    for (const secret of record.secrets) {
      const entry = { id: record.id, secret };
      this.#bySecret.set(secret.hash, entry);
      this.#bySecret.set(secret.sdkHash, entry);
    }
    this.#endStreams(record.id);
  }

  #drop(id: string): void {
    for (const { hash, sdkHash } of this.#byID.get(id)?.record.secrets ?? []) {
      this.#bySecret.delete(hash);
      this.#bySecret.delete(sdkHash);
    }
    this.#byID.delete(id);
    this.#uses.delete(id);
    this.#endStreams(id);
  }

  #endStreams(id: string): void {
    const streams = this.#streams.get(id);
    if (streams === undefined) return;
    const record = this.get(id);
    if (record !== undefined && this.stateOf(record) === "active") return;
    this.#streams.delete(id);
    for (const end of streams) end();
  }

  #noteUse(id: string, nowMs: number): void {
    const hour = nowMs - (nowMs % HOUR_MS);
    if ((this.#uses.get(id) ?? 0) >= hour) return;
    this.#uses.set(id, hour);
    this.#store.putUse(id, hour).catch((error: unknown) => this.#log.warn({ err: error, keyID: id }, "the last use of a named key was not stored"));
  }

  async #prune(): Promise<void> {
    const before = this.#nowMs() - REVOKED_KEPT_MS;
    const isFull = this.#byID.size >= MAX_KEYS;
    const revoked = this.all()
      .filter(({ revokedAtMs }) => revokedAtMs !== undefined)
      .sort((a, b) => (a.revokedAtMs ?? 0) - (b.revokedAtMs ?? 0));
    for (const record of revoked.filter(({ revokedAtMs }, at) => (revokedAtMs ?? 0) < before || (isFull && at === 0))) {
      await this.#store.remove(record);
      this.#drop(record.id);
    }
  }
}

function refuse(reason: string, message: string): never {
  throw new Failure("UNAUTHENTICATED", message, { details: { reason } });
}

function stateOf({ revokedAtMs, expiresAtMs }: KeyRecord, nowMs: number): KeyState {
  if (revokedAtMs !== undefined) return "revoked";
  return expiresAtMs !== undefined && expiresAtMs <= nowMs ? "expired" : "active";
}

/** Leaves out members that are undefined, as they are read back from JSON. */
function present<T extends object>(members: T): T {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined)) as T;
}
