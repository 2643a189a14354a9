// The warm restart: writes the whole index to disk at intervals, and reads it back at the start; a sibling's snapshot serves as well.
import { existsSync, mkdirSync, rmSync } from "node:fs";
import { open, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Log } from "@svc/kit/log.ts";
import type { Answer } from "../http/exchange.ts";
import { Refusal } from "../http/refusal.ts";
import { metricsOf, type NativeIndex } from "../index/native.ts";
import type { WriteBarrier } from "../index/write-barrier.ts";
import { asDiskFailure, replace } from "../registrations/disk.ts";
import type { Quarantine } from "../registrations/quarantine.ts";
import { rememberedOf } from "../stream/subscription-options.ts";
import type { Registry, SavedSubscription } from "./registry.ts";

type Note = { version: 1; subscriptions: SavedSubscription[] };

const NOTE_VERSION = 1;
/** The maximum number of concurrent downloads; each has a file of its own meanwhile. */
const MAX_DOWNLOADS = 2;

export class Snapshots {
  readonly #index: NativeIndex;
  readonly #writeBarrier: WriteBarrier;
  readonly #log: Log;
  readonly #quarantine: Quarantine;
  readonly #folder: string;
  readonly #file: string;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();
  #written = -1;
  #downloads = 0;
  #named = 0;
  lastSeconds = 0;
  lastBytes = 0;
  /** Why the last snapshot could not be written; "" if it was. */
  problem = "";

  constructor(index: NativeIndex, writeBarrier: WriteBarrier, log: Log, quarantine: Quarantine, folder: string) {
    this.#index = index;
    this.#writeBarrier = writeBarrier;
    this.#log = log;
    this.#quarantine = quarantine;
    this.#folder = folder;
    this.#file = join(folder, "index.snapshot");
  }

  /** Loads the last process's snapshot; a file that cannot be used is quarantined. */
  load(): SavedSubscription[] {
    rmSync(`${this.#file}.new`, { force: true });
    return existsSync(this.#file) ? this.#read(this.#file) : [];
  }

  /** Loads a sibling's snapshot and removes its file. */
  loadFrom(path: string): SavedSubscription[] {
    const saved = this.#read(path);
    rmSync(path, { force: true });
    return saved;
  }

  #read(path: string): SavedSubscription[] {
    const started = performance.now();
    try {
      const { version, subscriptions } = JSON.parse(this.#index.load(path)) as Note;
      if (version !== NOTE_VERSION) throw new Error(`its description has version ${version}; this indexer reads ${NOTE_VERSION}`);
      this.#log.info(
        { blocks: metricsOf(this.#index).blocks, subscriptions: subscriptions.length, ms: Math.round(performance.now() - started) },
        "a snapshot was read",
      );
      return subscriptions;
    } catch (error) {
      this.#quarantine.move(path, "index.snapshot", `this snapshot is not used: ${(error as Error).message}; the index begins empty and is filled by replays`);
      return [];
    }
  }

  /** Writes a file of one moment: the copy of the index and the positions of the subscriptions belong together. The file is not synced yet. */
  #take(registry: Registry, path: string): Promise<{ bytes: number; changes: number }> {
    return this.#writeBarrier.during(async () => {
      const subscriptions = [...registry.subscriptions.values()].map((subscription) => ({
        id: subscription.id,
        registration: subscription.registration,
        remembered: rememberedOf(subscription),
      }));
      const { changes } = metricsOf(this.#index);
      // The start may not have created the folder because the disk was full.
      mkdirSync(this.#folder, { recursive: true });
      const bytes = await this.#index.save(path, JSON.stringify({ version: NOTE_VERSION, subscriptions } satisfies Note));
      return { bytes, changes };
    });
  }

  /** Writes one snapshot at a time, and none while nothing changed. */
  write(registry: Registry): Promise<void> {
    this.#writing = this.#writing.then(() => this.#write(registry));
    return this.#writing;
  }

  async #write(registry: Registry): Promise<void> {
    if (metricsOf(this.#index).changes === this.#written) return;
    const started = performance.now();
    const fresh = `${this.#file}.new`;
    try {
      const { bytes, changes } = await this.#take(registry, fresh);
      const file = await open(fresh, "r");
      try {
        await file.sync();
      } finally {
        await file.close();
      }
      await replace(fresh, this.#file);
      this.#written = changes;
      this.lastBytes = bytes;
      this.lastSeconds = (performance.now() - started) / 1000;
      this.problem = "";
    } catch (error) {
      const failure = asDiskFailure(error, "the snapshot") as Error;
      this.problem = failure.message;
      this.#log.error({ err: failure, file: this.#file }, "the snapshot could not be written; the previous one stays");
      await rm(fresh, { force: true }).catch(() => {});
    }
  }

  /** Makes a snapshot for a client and serves it from its file, so that memory has no copy. */
  async download(registry: Registry): Promise<Answer> {
    if (this.#downloads >= MAX_DOWNLOADS) throw new Refusal("busy", `${MAX_DOWNLOADS} snapshots are being downloaded, the maximum; repeat the request later`);
    this.#downloads++;
    const path = join(this.#folder, `download-${++this.#named}.snapshot.new`);
    try {
      const { bytes } = await this.#take(registry, path);
      const file = await open(path, "r");
      const stream = file.createReadStream();
      stream.once("close", () => this.#downloads--);
      return { body: "", type: "application/octet-stream", stream: { source: stream, sizeBytes: bytes } };
    } catch (error) {
      this.#downloads--;
      throw asDiskFailure(error, "a snapshot");
    } finally {
      // A reader that has the file open can still read it.
      await rm(path, { force: true }).catch(() => {});
    }
  }

  every(seconds: number, registry: Registry): void {
    if (seconds > 0) this.#timer = setInterval(() => void this.write(registry), seconds * 1000);
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}
