// Engines that discovery finds: each describes itself, all its data-parallel ranks are registered, and they end when it is gone for good.
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import type { Registration } from "@svc/contract/indexer.ts";
import { Discovery } from "@svc/kit/discovery/discovery.ts";
import { describeEngine, type EngineDescription } from "@svc/kit/discovery/engine-description.ts";
import type { NamedEntry } from "@svc/kit/discovery/engine-entry.ts";
import { Repeat } from "@svc/kit/discovery/repeat.ts";
import type { Log } from "@svc/kit/log.ts";
import { writeDurably } from "../registrations/disk.ts";
import { keyOf } from "../registrations/register-input.ts";
import type { Registry } from "./registry.ts";

const LOOK_MS = 1_000;
/** The interval at which a connected engine describes itself again. One that is not connected may soon be another process, so each check asks it. */
const DESCRIBE_MS = 30_000;

export type DiscoveredOptions = {
  readonly registry: Registry;
  readonly sources: readonly string[];
  /** An engine that has not answered for this time is unregistered, even if its source still names it. */
  readonly forgetMs: number;
  readonly folder: string;
  readonly log: Log;
};

type Found = { readonly entry: NamedEntry; readonly loop: Repeat; awaySinceMs: number; describedMs: number };

export class Discovered {
  readonly #options: DiscoveredOptions;
  readonly #discovery: Discovery;
  readonly #file: string;
  readonly #found = new Map<string, Found>();
  /** The keys of registrations that discovery made; it never changes any others. */
  readonly #own: Set<string>;
  /** Why an engine is not registered, by its name. */
  readonly #problems = new Map<string, string>();
  #work: Promise<void> = Promise.resolve();

  constructor(options: DiscoveredOptions) {
    this.#options = options;
    this.#file = join(options.folder, "discovered.json");
    this.#own = new Set(this.#load());
    this.#discovery = new Discovery({ sources: options.sources, log: options.log, onEntries: (entries) => this.#entries(entries) });
  }

  /** @throws SETTING_INVALID for a source that is not one. */
  begin(): void {
    this.#discovery.begin();
    if (this.#options.sources.length === 0) this.#entries([]);
  }

  /** True if discovery made the registration, so that it may end it. */
  owns(registration: Registration): boolean {
    return this.#own.has(keyOf(registration));
  }

  problems(): string[] {
    const sources = [...this.#discovery.troubles].map(([source, reason]) => `--discover ${source} cannot be read: ${reason}`);
    return [...sources, ...[...this.#problems].map(([name, reason]) => `the engine ${name} that discovery found is not registered: ${reason}`)];
  }

  async close(): Promise<void> {
    await this.#discovery.close();
    await Promise.all([...this.#found.values()].map(({ loop }) => loop.close()));
    await this.#work;
  }

  #entries(entries: readonly NamedEntry[]): void {
    const wanted = new Map(entries.map((entry) => [entry.name, entry]));
    for (const [name, { entry, loop }] of this.#found) {
      if (isDeepStrictEqual(wanted.get(name), entry)) continue;
      this.#found.delete(name);
      this.#problems.delete(name);
      void loop.close();
      if (!wanted.has(name)) this.#later(() => this.#unregister(name, "its source no longer names it"));
    }
    for (const [name, entry] of wanted) {
      if (this.#found.has(name)) continue;
      const found: Found = { entry, loop: new Repeat((signal) => this.#look(found, signal)), awaySinceMs: Date.now(), describedMs: 0 };
      this.#found.set(name, found);
    }
    // Ends registrations from before a restart whose engines are gone by now.
    if (this.#discovery.isComplete)
      this.#later(async () => {
        for (const { registration } of [...this.#options.registry.subscriptions.values()])
          if (this.owns(registration) && !this.#found.has(registration.instance_id)) await this.#unregister(registration.instance_id, "no source names it");
      });
  }

  /** Returns when to look again. */
  async #look(found: Found, signal: AbortSignal): Promise<number> {
    const { entry } = found;
    const { forgetMs } = this.#options;
    const live = () => this.#ranksOf(entry.name).some(({ connected }) => connected);
    if (live()) {
      found.awaySinceMs = Date.now();
      if (Date.now() - found.describedMs < DESCRIBE_MS) return LOOK_MS;
    }
    try {
      const description = await describeEngine(entry, signal);
      if (signal.aborted) return 0;
      found.describedMs = Date.now();
      await this.#later(() => this.#register(entry, description));
    } catch (error) {
      if (signal.aborted) return 0;
      if (!live()) this.#problems.set(entry.name, (error as Error).message);
    }
    if (live()) return LOOK_MS;
    if (Date.now() - found.awaySinceMs >= forgetMs && this.#ranksOf(entry.name).length > 0)
      await this.#later(() => this.#unregister(entry.name, `it has not answered for ${forgetMs / 1000} s (indexer.forget_seconds)`));
    return LOOK_MS;
  }

  #ranksOf(name: string) {
    return [...this.#options.registry.subscriptions.values()].filter(({ registration }) => registration.instance_id === name && this.owns(registration));
  }

  async #register(entry: NamedEntry, description: EngineDescription): Promise<void> {
    const { registry, log } = this.#options;
    if (this.#found.get(entry.name)?.entry !== entry) return;
    if (description.publishers.length === 0) {
      this.#problems.set(entry.name, "it publishes no KV events: start it with --kv-events-config");
      return;
    }
    const wanted = new Map(description.publishers.map((publisher) => registrationOf(entry, description, publisher)).map((one) => [keyOf(one), one]));
    this.#problems.delete(entry.name);
    for (const { registration } of this.#ranksOf(entry.name))
      if (!isDeepStrictEqual(wanted.get(keyOf(registration)), registration)) await this.#end(registration, "it describes itself differently now");
    for (const [key, registration] of wanted) {
      const known = registry.subscriptions.get(key);
      if (known !== undefined) {
        if (!this.#own.has(key) && !isDeepStrictEqual(known.registration, registration))
          this.#problems.set(entry.name, "it was registered by hand with other fields, and that registration stays");
        continue;
      }
      try {
        // The key is stored before the registration: otherwise, after a crash in between, nothing would end the registration with its engine.
        this.#own.add(key);
        await this.#store();
        await registry.register(registration);
        log.info({ engine: entry.name, url: entry.url, rank: registration.dp_rank }, "an engine was found");
      } catch (error) {
        this.#own.delete(key);
        this.#problems.set(entry.name, (error as Error).message);
      }
    }
  }

  async #unregister(name: string, why: string): Promise<void> {
    for (const { registration } of this.#ranksOf(name)) await this.#end(registration, why);
  }

  async #end(registration: Registration, why: string): Promise<void> {
    const { registry, log } = this.#options;
    const key = keyOf(registration);
    if (registry.subscriptions.has(key)) await registry.unregister(registration);
    this.#own.delete(key);
    await this.#store();
    log.info({ engine: registration.instance_id, rank: registration.dp_rank, reason: why }, "a discovered engine was unregistered");
  }

  /** Registrations change one after the other. */
  #later(act: () => Promise<void>): Promise<void> {
    const { log } = this.#options;
    const done = this.#work.then(act);
    this.#work = done.catch((error: unknown) => log.error({ err: error }, "a discovered engine could not be registered or unregistered"));
    return done;
  }

  #load(): string[] {
    try {
      const keys = JSON.parse(readFileSync(this.#file, "utf8")) as unknown;
      return Array.isArray(keys) ? keys.filter((key): key is string => typeof key === "string") : [];
    } catch {
      return [];
    }
  }

  async #store(): Promise<void> {
    mkdirSync(this.#options.folder, { recursive: true });
    await writeDurably(this.#file, `${JSON.stringify([...this.#own])}\n`);
  }
}

function registrationOf(entry: NamedEntry, { type, model, blockSize }: EngineDescription, publisher: EngineDescription["publishers"][number]): Registration {
  return {
    endpoint: publisher.endpoint,
    replay_endpoint: publisher.replayEndpoint,
    type,
    modelname: model,
    // Adapters are named by the events.
    lora_name: "",
    tenant_id: entry.tenant_id ?? "default",
    instance_id: entry.name,
    block_size: blockSize,
    dp_rank: publisher.rank,
    additionalsalt: entry.additionalsalt ?? "",
  };
}
