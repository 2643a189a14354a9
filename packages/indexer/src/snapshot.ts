// The warm restart: the whole index on disk from time to time, read back at the start; a sibling's serves as well.
import { mkdirSync, readFileSync } from "node:fs";
import { open, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import { figuresOf, type NativeIndex } from "./native.ts";
import type { Registry, SavedSubscription } from "./registry.ts";
import type { Stillness } from "./stillness.ts";

type Note = { version: 1; subscriptions: SavedSubscription[] };

const NOTE_VERSION = 1;
const MAX_SIBLING_BYTES = 64 * 1024 ** 3;

export class Snapshots {
  readonly #index: NativeIndex;
  readonly #stillness: Stillness;
  readonly #log: Log;
  readonly #file: string;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();
  #written = -1;
  lastSeconds = 0;
  lastBytes = 0;

  constructor(index: NativeIndex, stillness: Stillness, log: Log, folder: string) {
    mkdirSync(folder, { recursive: true });
    this.#index = index;
    this.#stillness = stillness;
    this.#log = log;
    this.#file = join(folder, "index.snapshot");
  }

  /** What the last process knew; a damaged file is told of and left out. */
  load(): SavedSubscription[] {
    let bytes: Buffer;
    try {
      bytes = readFileSync(this.#file);
    } catch {
      return [];
    }
    try {
      return this.read(bytes);
    } catch (error) {
      this.#log.error({ err: error, file: this.#file }, "the snapshot is not used; the index begins empty and is filled by replays");
      return [];
    }
  }

  read(bytes: Buffer): SavedSubscription[] {
    const started = performance.now();
    const note = JSON.parse(this.#index.load(bytes)) as Note;
    this.#log.info(
      { blocks: figuresOf(this.#index).blocks, subscriptions: note.subscriptions.length, ms: Math.round(performance.now() - started) },
      "a snapshot was read",
    );
    return note.subscriptions;
  }

  /** What was taken in up to one moment: the index's copy and the subscriptions' places are of the same one. */
  take(registry: Registry): Promise<{ bytes: Buffer; changes: number }> {
    return this.#stillness.during(async () => {
      const subscriptions = [...registry.subscriptions.values()].map((subscription) => ({
        id: subscription.id,
        registration: subscription.registration,
        remembered: subscription.remember(),
      }));
      const { changes } = figuresOf(this.#index);
      const bytes = await this.#index.save(JSON.stringify({ version: NOTE_VERSION, subscriptions } satisfies Note));
      return { bytes, changes };
    });
  }

  /** One at a time; nothing is written while nothing changed. */
  write(registry: Registry): Promise<void> {
    this.#writing = this.#writing.then(async () => {
      if (figuresOf(this.#index).changes === this.#written) return;
      const started = performance.now();
      const { bytes, changes } = await this.take(registry);
      const fresh = `${this.#file}.new`;
      const file = await open(fresh, "w");
      try {
        await file.writeFile(bytes);
        await file.sync();
      } finally {
        await file.close();
      }
      await rename(fresh, this.#file);
      this.#written = changes;
      this.lastBytes = bytes.length;
      this.lastSeconds = (performance.now() - started) / 1000;
    });
    return this.#writing.catch(async (error: unknown) => {
      this.#writing = Promise.resolve();
      this.#log.error({ err: error, file: this.#file }, "the snapshot could not be written; the former one stays");
      await rm(`${this.#file}.new`, { force: true });
    });
  }

  every(seconds: number, registry: Registry): void {
    if (seconds > 0) this.#timer = setInterval(() => void this.write(registry), seconds * 1000);
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}

/** A running indexer's snapshot. */
export async function fetchSibling(url: string): Promise<Buffer> {
  let response: Response;
  try {
    response = await fetch(`${url.replace(/\/+$/, "")}/snapshot`);
  } catch (error) {
    return fail("SERVER_UNREACHABLE", `indexer.bootstrap_from: no indexer answers at ${url}`, { cause: error });
  }
  if (!response.ok) fail("SERVER_UNREACHABLE", `indexer.bootstrap_from: ${url}/snapshot answered ${response.status}`);
  if (Number(response.headers.get("content-length")) > MAX_SIBLING_BYTES)
    fail("CAPACITY_EXHAUSTED", `the snapshot of ${url} is larger than ${MAX_SIBLING_BYTES} bytes`);
  return Buffer.from(await response.arrayBuffer());
}
