// The active registrations: created, ended, stored on disk, and restored at the start.
import { isDeepStrictEqual } from "node:util";
import type { Registration } from "@svc/contract/indexer.ts";
import type { Log } from "@svc/kit/log.ts";
import { Refusal } from "../http/refusal.ts";
import { Generations } from "../index/generations.ts";
import type { Intake } from "../index/intake.ts";
import type { NativeIndex, NativeSubscription } from "../index/native.ts";
import { Reclaimer } from "../index/reclaim.ts";
import { asDiskFailure } from "../registrations/disk.ts";
import type { Quarantine } from "../registrations/quarantine.ts";
import { countsCopies, type Identity, keyOf, keysOf, kindOf, nameOf, readRegistration } from "../registrations/register-input.ts";
import { RegistrationFiles } from "../registrations/registration-files.ts";
import type { IndexerSettings } from "../settings.ts";
import { Subscription } from "../stream/subscription.ts";
import type { Remembered } from "../stream/subscription-options.ts";
import type { Limits } from "../stream/zmq.ts";
import { Listeners } from "../zmtp/listeners.ts";

const LOOK_MS = 1_000;

/** A subscription as a snapshot has it. */
export type SavedSubscription = { id: number; registration: Registration; remembered: Remembered };

export type RegistryOptions = {
  readonly index: NativeIndex;
  readonly intake: Intake;
  readonly settings: IndexerSettings;
  readonly log: Log;
  readonly folder: string;
  readonly quarantine: Quarantine;
  readonly limits: Limits;
};

export class Registry {
  /** Subscriptions by `keyOf`. */
  readonly subscriptions = new Map<string, Subscription>();
  readonly files: RegistrationFiles;
  readonly #options: RegistryOptions;
  readonly #reclaimer: Reclaimer;
  /** Keys whose registration or removal is under way. */
  readonly #changing = new Set<string>();
  readonly #listeners = new Listeners();
  #timer: NodeJS.Timeout | undefined;
  #judged: Promise<void> = Promise.resolve();

  constructor(options: RegistryOptions) {
    this.#options = options;
    this.#reclaimer = new Reclaimer(options.index, options.intake);
    this.files = new RegistrationFiles(options.folder, options.quarantine, (input) => this.read(input));
  }

  read(input: unknown): Registration {
    return readRegistration(input, this.#options.settings.brand);
  }

  /** Begins to consume; a repeat of the same registration changes nothing. A registration that fails leaves nothing behind. */
  async register(registration: Registration, { saved, kept = false }: { saved?: SavedSubscription | undefined; kept?: boolean } = {}): Promise<Subscription> {
    const { index, log, limits, intake } = this.#options;
    const key = keyOf(registration);
    const name = nameOf(registration);
    const known = this.subscriptions.get(key);
    if (known !== undefined) {
      if (isDeepStrictEqual(known.registration, registration)) return known;
      throw new Refusal(
        "invalid_registration",
        `${name} is registered with other fields (${differences(known.registration, registration)}); unregister it first`,
      );
    }
    if (this.subscriptions.size + this.#changing.size >= limits.publishers)
      throw new Refusal(
        "out_of_range",
        `${this.subscriptions.size} publishers are registered, the maximum under the limit of ${limits.descriptors} open files (ulimit -n)`,
      );
    this.#hold(key, name);
    try {
      await intake.writeBarrier.wait();
      const description = this.#describe(registration);
      const generations = new Generations(
        { index, reclaimer: this.#reclaimer, description },
        saved?.id ?? index.subscribe(description),
        saved?.remembered.former,
      );
      let subscription: Subscription | undefined;
      try {
        subscription = await this.#begin(generations, registration, saved);
        if (!kept) await this.files.keep(registration);
      } catch (error) {
        await subscription?.close();
        if (subscription !== undefined && !kept) await this.files.forget(registration).catch(() => {});
        await intake.writeBarrier.wait();
        generations.end();
        throw asDiskFailure(error, `the registration ${name}`);
      }
      this.subscriptions.set(key, subscription);
    } finally {
      this.#changing.delete(key);
    }
    // At the start, a snapshot may have had blocks of registrations that are gone.
    this.#reclaimer.begin();
    this.#options.quarantine.forget(name);
    log.info({ subscription: name, endpoint: registration.endpoint, replay: registration.replay_endpoint }, "registered");
    return this.subscriptions.get(key) as Subscription;
  }

  /**
   * Ends the subscriptions of an identity, or with `type` the one of that kind; their blocks are gone from answers when this returns, which
   * says how many there were.
   */
  async unregister(identity: Identity): Promise<number> {
    const keys = (identity.type === undefined ? keysOf(identity) : [keyOf(identity)]).filter((key) => this.subscriptions.has(key));
    if (keys.length === 0) throw new Refusal("not_found", `no registration ${nameOf(identity)} (instance_id|tenant_id|dp_rank)`, {}, "REGISTRATION_NOT_FOUND");
    for (const key of keys) await this.#end(key);
    return keys.length;
  }

  async #end(key: string): Promise<void> {
    const { log, intake } = this.#options;
    const subscription = this.subscriptions.get(key);
    if (subscription === undefined) return;
    const name = nameOf(subscription.registration);
    this.#hold(key, name);
    try {
      // The file goes first: if it stayed, the next start would restore the registration.
      await this.files.forget(subscription.registration);
      this.subscriptions.delete(key);
      await subscription.close();
      await intake.writeBarrier.wait();
      subscription.generations.end();
    } finally {
      this.#changing.delete(key);
    }
    log.info({ subscription: name }, "unregistered");
  }

  /** Checks periodically which publishers were not connected for `silenceMs`; their blocks do not count until they are back. */
  watchSilence(silenceMs: number): void {
    const everyMs = Math.min(LOOK_MS, silenceMs / 4);
    this.#timer = setInterval(() => {
      this.#judged = this.#judged.then(() => this.#judge(silenceMs)).catch((error: unknown) => this.#options.log.error({ err: error }, "silence"));
    }, everyMs);
  }

  async #judge(silenceMs: number): Promise<void> {
    const { index, intake } = this.#options;
    for (const subscription of this.subscriptions.values()) {
      const { counts, startedAtMs } = subscription;
      const isDead = () => !subscription.connected && Date.now() - (counts.awaySinceMs ?? startedAtMs) >= silenceMs;
      if (isDead() === counts.isDead) continue;
      await intake.writeBarrier.wait();
      if (isDead() === counts.isDead || this.subscriptions.get(keyOf(subscription.registration)) !== subscription) continue;
      counts.isDead = !counts.isDead;
      for (const id of subscription.generations.ids) index.setDead(id, counts.isDead ? 1 : 0);
    }
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    await this.#judged;
    await Promise.all([...this.subscriptions.values()].map((subscription) => subscription.close()));
  }

  async #begin(generations: Generations, registration: Registration, saved?: SavedSubscription): Promise<Subscription> {
    const { index, intake, settings, log } = this.#options;
    let subscription: Subscription | undefined;
    try {
      subscription = new Subscription({
        index,
        reclaimer: this.#reclaimer,
        listeners: this.#listeners,
        intake,
        generations,
        registration,
        kind: kindOf(registration.type, settings.brand),
        log,
        replayTimeoutMs: settings.replay_timeout_ms,
        reorderGraceMs: settings.reorder_grace_ms,
        quietCheckMs: settings.quiet_check_ms,
        uncertainMs: settings.uncertain_seconds * 1000,
        remembered: saved?.remembered,
      });
      await subscription.start();
      return subscription;
    } catch (error) {
      await subscription?.close();
      const { code, message } = error as NodeJS.ErrnoException;
      if (code === "EMFILE" || code === "ENFILE")
        throw new Refusal("out_of_range", `no more sockets can be opened (${message}); raise the limit of open files (ulimit -n)`);
      throw new Refusal("invalid_value", `endpoint: ${registration.endpoint} cannot be ${isBound(message) ? "listened on" : "used"}: ${message}`, {
        field: "endpoint",
      });
    }
  }

  #hold(key: string, name: string): void {
    if (this.#changing.has(key)) throw new Refusal("invalid_registration", `${name} is being registered or unregistered by another request; repeat it`);
    this.#changing.add(key);
  }

  #describe(registration: Registration): NativeSubscription {
    return {
      instance: registration.instance_id,
      tenant: registration.tenant_id,
      model: registration.modelname,
      lora: registration.lora_name,
      salt: registration.additionalsalt,
      key: keyOf(registration),
      blockSize: registration.block_size,
      rank: registration.dp_rank,
      store: kindOf(registration.type, this.#options.settings.brand) === "store" ? 1 : 0,
      countsCopies: countsCopies(registration.type),
    };
  }
}

function isBound(message: string): boolean {
  return /address (is )?(already )?in use/i.test(message);
}

function differences(known: Registration, given: Registration): string {
  const fields = Object.keys(known) as (keyof Registration)[];
  return fields
    .filter((field) => known[field] !== given[field])
    .map((field) => `${field}: ${JSON.stringify(known[field])}`)
    .join(", ");
}
