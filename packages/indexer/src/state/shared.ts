// Registrations that all replicas of the indexer share through etcd: what one of them registers or unregisters, the others do as well.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import type { Registration } from "@svc/contract/indexer.ts";
import { type Etcd, openEtcd } from "@svc/kit/etcd/client.ts";
import { isAbsent } from "@svc/kit/etcd/transaction.ts";
import type { KeyValue } from "@svc/kit/etcd/wire.ts";
import type { Log } from "@svc/kit/log.ts";
import type { PeerCertificates } from "@svc/kit/peers/peer-certificates.ts";
import { Refusal } from "../http/refusal.ts";
import { writeDurably } from "../registrations/disk.ts";
import { type Identity, keyOf, keysOf, nameOf } from "../registrations/register-input.ts";
import type { Registry } from "./registry.ts";

export type SharedOptions = {
  readonly registry: Registry;
  readonly endpoints: readonly string[];
  /** Shown to etcd at `https://` URLs. */
  readonly certificates?: PeerCertificates | undefined;
  /** Indexers with one name share their registrations. */
  readonly name: string;
  readonly folder: string;
  /** False for a registration that is not to be shared: of the settings, or found by discovery. */
  readonly isOwn: (registration: Registration) => boolean;
  readonly log: Log;
};

export class Shared {
  readonly #options: SharedOptions;
  readonly #etcd: Etcd;
  readonly #prefix: string;
  readonly #file: string;
  /** The keys of registrations in etcd, as this replica last saw them. */
  readonly #keys: Set<string>;
  #work: Promise<void> = Promise.resolve();
  /** Why etcd cannot be read; "" if it can. */
  trouble = "etcd has not been read yet";

  constructor(options: SharedOptions) {
    this.#options = options;
    this.#etcd = openEtcd({ endpoints: options.endpoints, certificates: options.certificates });
    this.#prefix = `/svc/indexer/${options.name}/registrations/`;
    this.#file = join(options.folder, "shared.json");
    this.#keys = new Set(this.#load());
  }

  begin(): void {
    this.#etcd.watch(this.#prefix, {
      onAll: (entries) => this.#later(() => this.#all(entries)),
      onEvents: (events) =>
        this.#later(async () => {
          for (const event of events) {
            if (event.type === "put") await this.#take(event.entry);
            else await this.#drop(event.key);
          }
        }),
      onInterrupted: (reason) => (this.trouble = reason),
      onCurrent: () => (this.trouble = ""),
    });
  }

  /** Shares a registration with the other replicas. @throws Refusal; the registration then exists only here. */
  async put(registration: Registration): Promise<void> {
    const key = this.#keyOf(registration);
    const value = JSON.stringify(registration);
    const { succeeded, entries } = await this.#call(() => this.#etcd.transact({ if: [isAbsent(key)], do: [{ put: key, value }], else: [{ get: key }] }));
    const known = entries[0]?.[0]?.value;
    if (!succeeded && known !== undefined && !isDeepStrictEqual(JSON.parse(known), registration))
      throw new Refusal("invalid_registration", `${nameOf(registration)} is registered with other fields at another replica; unregister it first`);
    await this.#note(key, true);
  }

  /** Unregisters all publishers of an identity on every replica, and returns how many there were here. @throws Refusal */
  remove(identity: Omit<Identity, "type">): Promise<number> {
    const { registry } = this.#options;
    // The removal is queued with the watch's changes, since the watch reports this removal, too.
    const done = this.#work.then(async () => {
      let wasShared = false;
      for (const key of keysOf(identity).map((one) => this.#named(one))) {
        if (await this.#call(() => this.#etcd.delete(key))) wasShared = true;
        await this.#note(key, false);
      }
      if (keysOf(identity).some((key) => registry.subscriptions.has(key)) || !wasShared) return registry.unregister(identity);
      return 1;
    });
    this.#work = done.then(
      () => {},
      () => {},
    );
    return done;
  }

  async close(): Promise<void> {
    await this.#etcd.close();
    await this.#work;
  }

  async #all(entries: readonly KeyValue[]): Promise<void> {
    const { registry, isOwn } = this.#options;
    this.trouble = "";
    const there = new Set(entries.map(({ key }) => key));
    for (const key of [...this.#keys]) if (!there.has(key)) await this.#drop(key);
    for (const entry of entries) await this.#take(entry);
    // A registration from before etcd was configured is shared from now on.
    for (const { registration } of [...registry.subscriptions.values()])
      if (!this.#keys.has(this.#keyOf(registration)) && isOwn(registration)) await this.put(registration);
  }

  async #take({ key, value }: KeyValue): Promise<void> {
    const { registry, log } = this.#options;
    let registration: Registration;
    try {
      registration = registry.read(JSON.parse(value));
    } catch (error) {
      return log.warn({ key, reason: (error as Error).message }, "a shared registration cannot be read");
    }
    await this.#note(key, true);
    const known = registry.subscriptions.get(keyOf(registration));
    if (known !== undefined && isDeepStrictEqual(known.registration, registration)) return;
    if (known !== undefined) await registry.unregister(registration);
    await registry.register(registration);
  }

  async #drop(key: string): Promise<void> {
    const { registry } = this.#options;
    await this.#note(key, false);
    const gone = [...registry.subscriptions.values()].find(({ registration }) => this.#keyOf(registration) === key);
    if (gone !== undefined) await registry.unregister(gone.registration);
  }

  #later(act: () => Promise<void>): void {
    const { log } = this.#options;
    this.#work = this.#work.then(act).catch((error: unknown) => log.error({ err: error }, "a shared registration could not be taken over"));
  }

  async #call<T>(act: () => Promise<T>): Promise<T> {
    try {
      return await act();
    } catch (error) {
      throw new Refusal("busy", `registrations are shared through etcd (indexer.etcd), which did not answer: ${(error as Error).message}; repeat the request`);
    }
  }

  #keyOf(identity: Identity): string {
    return this.#named(keyOf(identity));
  }

  #named(key: string): string {
    return this.#prefix + createHash("sha256").update(key).digest("hex").slice(0, 32);
  }

  async #note(key: string, isThere: boolean): Promise<void> {
    if (this.#keys.has(key) === isThere) return;
    if (isThere) this.#keys.add(key);
    else this.#keys.delete(key);
    mkdirSync(this.#options.folder, { recursive: true });
    await writeDurably(this.#file, `${JSON.stringify([...this.#keys])}\n`);
  }

  #load(): string[] {
    try {
      const keys = JSON.parse(readFileSync(this.#file, "utf8")) as unknown;
      return Array.isArray(keys) ? keys.filter((key): key is string => typeof key === "string") : [];
    } catch {
      return [];
    }
  }
}
