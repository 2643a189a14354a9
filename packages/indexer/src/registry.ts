// The registrations in force: made, ended, kept on disk, and read back at the start.
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import type { Registration } from "@svc/contract/indexer.ts";
import type { Log } from "@svc/kit/log.ts";
import type { NativeIndex, NativeSubscription } from "./native.ts";
import { Reclaimer } from "./reclaim.ts";
import { Refusal } from "./refusal.ts";
import { keyOf, kindOf, readRegistration } from "./register-input.ts";
import type { IndexerSettings } from "./settings.ts";
import type { Stillness } from "./stillness.ts";
import { type Remembered, Subscription } from "./subscription.ts";

/** Publishers at once. */
export const MAX_REGISTRATIONS = 4096;

/** A subscription as a snapshot has it. */
export type SavedSubscription = { id: number; registration: Registration; remembered: Remembered };

export class Registry {
  readonly subscriptions = new Map<string, Subscription>();
  readonly #index: NativeIndex;
  readonly #reclaimer: Reclaimer;
  readonly #stillness: Stillness;
  readonly #settings: IndexerSettings;
  readonly #log: Log;
  readonly #file: string;
  /** Keys whose registration or end is under way. */
  readonly #changing = new Set<string>();

  constructor(index: NativeIndex, stillness: Stillness, settings: IndexerSettings, log: Log, folder: string) {
    this.#index = index;
    this.#stillness = stillness;
    this.#reclaimer = new Reclaimer(index, stillness);
    this.#settings = settings;
    this.#log = log;
    this.#file = join(folder, "registrations.json");
    mkdirSync(folder, { recursive: true });
  }

  read(input: unknown): Registration {
    return readRegistration(input, this.#settings.brand);
  }

  /** The registrations that the former process had. */
  saved(): Registration[] {
    let text: string;
    try {
      text = readFileSync(this.#file, "utf8");
    } catch {
      return [];
    }
    return (JSON.parse(text) as unknown[]).map((record) => this.read(record));
  }

  /** Begins to consume; a repeat of the same registration changes nothing. */
  async register(registration: Registration, saved?: SavedSubscription): Promise<Subscription> {
    const key = keyOf(registration);
    const known = this.subscriptions.get(key);
    if (known !== undefined) {
      if (isDeepStrictEqual(known.registration, registration)) return known;
      throw new Refusal(
        "invalid_registration",
        `${key} is registered with other fields (${differences(known.registration, registration)}); unregister it first`,
      );
    }
    if (this.subscriptions.size >= MAX_REGISTRATIONS) throw new Refusal("out_of_range", `${MAX_REGISTRATIONS} publishers are registered; no more are taken`);
    this.#hold(key);
    await this.#stillness.wait();
    const id = saved?.id ?? this.#index.subscribe(this.#describe(registration, key));
    const subscription = new Subscription({
      index: this.#index,
      reclaimer: this.#reclaimer,
      stillness: this.#stillness,
      id,
      registration,
      kind: kindOf(registration.type, this.#settings.brand),
      log: this.#log,
      replayTimeoutMs: this.#settings.replay_timeout_ms,
      reorderGraceMs: this.#settings.reorder_grace_ms,
      quietCheckMs: this.#settings.quiet_check_ms,
      remembered: saved?.remembered,
    });
    try {
      await subscription.start();
    } catch (error) {
      await subscription.close();
      await this.#stillness.wait();
      this.#index.unsubscribe(id);
      const message = `${registration.endpoint} cannot be listened on: ${(error as Error).message}`;
      throw new Refusal("invalid_value", message, { field: "endpoint" });
    } finally {
      this.#changing.delete(key);
    }
    this.subscriptions.set(key, subscription);
    // At the start: of snapshots whose registrations are gone.
    this.#reclaimer.begin();
    this.#keep();
    this.#log.info({ subscription: key, endpoint: registration.endpoint, replay: registration.replay_endpoint }, "registered");
    return subscription;
  }

  /** Ends a subscription; what it gave is gone when this returns. */
  async unregister(key: string): Promise<void> {
    const subscription = this.subscriptions.get(key);
    if (subscription === undefined) throw new Refusal("not_found", `no registration ${key} (instance_id|tenant_id|dp_rank)`, {}, "REGISTRATION_NOT_FOUND");
    this.#hold(key);
    this.subscriptions.delete(key);
    try {
      await subscription.close();
      await this.#stillness.wait();
      this.#index.unsubscribe(subscription.id);
      this.#reclaimer.begin();
    } finally {
      this.#changing.delete(key);
    }
    this.#keep();
    this.#log.info({ subscription: key }, "unregistered");
  }

  async close(): Promise<void> {
    await Promise.all([...this.subscriptions.values()].map((subscription) => subscription.close()));
  }

  #hold(key: string): void {
    if (this.#changing.has(key)) throw new Refusal("invalid_registration", `${key} is being registered or unregistered by another request; repeat it`);
    this.#changing.add(key);
  }

  #describe(registration: Registration, key: string): NativeSubscription {
    return {
      instance: registration.instance_id,
      tenant: registration.tenant_id,
      model: registration.modelname,
      lora: registration.lora_name,
      salt: registration.additionalsalt,
      key,
      blockSize: registration.block_size,
      rank: registration.dp_rank,
      store: kindOf(registration.type, this.#settings.brand) === "store" ? 1 : 0,
    };
  }

  #keep(): void {
    const records = [...this.subscriptions.values()].map(({ registration }) => registration);
    writeFileSync(`${this.#file}.new`, `${JSON.stringify(records, null, 2)}\n`, { flush: true });
    renameSync(`${this.#file}.new`, this.#file);
  }
}

function differences(known: Registration, given: Registration): string {
  const fields = Object.keys(known) as (keyof Registration)[];
  return fields
    .filter((field) => known[field] !== given[field])
    .map((field) => `${field}: ${JSON.stringify(known[field])}`)
    .join(", ");
}
