// Stores objects as files of a bucket, each complete or absent: the file store of a device of kind s3.
import { Failure, fail } from "@svc/contract/failures.ts";
import { Semaphore } from "@svc/kit/semaphore.ts";
import type { About, FileStore, Found } from "../disk/file-store.ts";
import { troubleOf } from "../disk/object-files.ts";
import { listBucket } from "./bucket-list.ts";
import { fileName, numbersName, PART_BYTES } from "./bucket-names.ts";
import { type BucketParts, type Entry, moveObject, namesOfFile } from "./bucket-objects.ts";
import { fetchFile, readAbout } from "./bucket-read.ts";
import { asTrouble, trouble } from "./bucket-trouble.ts";
import { uploadFile } from "./bucket-upload.ts";

//  write: local copy, verified ──> [pending name] ──> parts ──> end ──> [pending name deleted] ──> the file exists
// A file whose bytes are not proven to be its object's keeps its pending name until the master accepts it; a start that finds one quarantines it.

/** The file numbers that are reserved at a time; unused ones are lost in a crash. */
const RESERVED = 4096;
const MAX_FILE = 2 ** 28 - 1;
/** Each upload holds one part in memory. */
const UPLOADS = 4;
const FETCHES = 4;
const MAX_WAITING = 1024;
const MAX_REMEMBERED = 100_000;
/** The interval of renewing the claim; shorter while the server does not answer, so that its return is noticed early. */
const BEAT_MS = 10_000;
const AGAIN_MS = 1000;
const CLOSE_MS = 5000;

export class BucketFiles implements FileStore {
  readonly folder: string;
  readonly #parts: BucketParts;
  #entries = new Map<number, Entry>();
  readonly #abouts = new Map<number, Found>();
  readonly #uploads = new Semaphore(UPLOADS, MAX_WAITING);
  readonly #fetches = new Semaphore(FETCHES, MAX_WAITING);
  readonly #fetching = new Map<number, Promise<void>>();
  /** Names that are no longer used and could not be deleted yet. */
  readonly #doomed = new Set<string>();
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;
  #next = 0;
  #reserved = 0;
  #reserving: Promise<void> | undefined;
  #reservation = "";
  #sinceMs = 0;
  #waiting = 0;
  silence = "";

  constructor(parts: BucketParts) {
    this.folder = parts.objects.url;
    this.#parts = parts;
    this.#beatIn(BEAT_MS);
  }

  async list(): Promise<number[]> {
    const { entries, next, reservations } = await this.#watched(() => listBucket(this.#parts.objects, this.#parts.names));
    this.#entries = entries;
    this.#next = this.#reserved = next;
    await this.#watched(() => this.#reserve());
    for (const name of reservations) if (name !== this.#reservation) this.#doomed.add(name);
    return [...entries.keys()].sort((one, other) => one - other);
  }

  sizeOf(file: number): number | undefined {
    const entry = this.#entries.get(file);
    return entry && entry.parts * PART_BYTES + entry.endBytes;
  }

  async number(): Promise<number> {
    if (this.#next >= MAX_FILE) fail("CAPACITY_EXHAUSTED", `${this.folder}: all ${MAX_FILE} file numbers are used up; start with an empty prefix`);
    while (this.#next >= this.#reserved) {
      this.#reserving ??= this.#watched(() => this.#reserve()).finally(() => {
        this.#reserving = undefined;
      });
      await this.#reserving;
    }
    return this.#next++;
  }

  async write(file: number, words: BigUint64Array, about: About, expected: bigint | undefined): Promise<bigint> {
    const { spool } = this.#parts;
    const checksum = await spool.write(file, words, about, expected).catch(async (error) => {
      if (troubleOf(error) !== "full") throw error;
      await spool.dropAll();
      return spool.write(file, words, about, expected);
    });
    let sizeBytes = 0;
    for (let at = 2; at < words.length; at += 3) sizeBytes += Number(words[at]);
    try {
      const entry = await this.#uploads.run(() =>
        this.#watched(() => uploadFile(this.#parts, { file, sizeBytes, isProven: expected !== undefined }, (tried) => this.#delete(file, tried))),
      );
      this.#entries.set(file, entry);
      this.#remember({ ...about, file, sizeBytes, checksum });
      await spool.keep(file);
      return checksum;
    } catch (error) {
      await spool.drop(file);
      throw asTrouble(error);
    }
  }

  async settle(file: number): Promise<void> {
    const { objects, names } = this.#parts;
    const entry = this.#entries.get(file);
    if (entry !== undefined) await this.#watched(() => objects.delete(`${names.pending}${fileName(file, entry.epoch)}`));
  }

  async remove(file: number): Promise<void> {
    const entry = this.#entries.get(file);
    this.#entries.delete(file);
    this.#abouts.delete(file);
    await this.#parts.spool.drop(file);
    if (entry !== undefined) await this.#delete(file, entry);
  }

  /** Moves a file to the quarantine, under its own name. */
  async quarantine(file: number): Promise<void> {
    const { objects, names, spool } = this.#parts;
    const entry = this.#entries.get(file);
    if (entry === undefined) return;
    this.#entries.delete(file);
    this.#abouts.delete(file);
    await spool.drop(file);
    for (const name of namesOfFile(file, entry).reverse())
      await this.#watched(() => moveObject(objects, `${names.objects}${name}`, `${names.quarantine.final}${name}`));
  }

  /** Verifies the bytes in the bucket rather than a local copy. */
  async verify(file: number): Promise<void> {
    await this.#parts.spool.drop(file);
    await this.bring(file);
    await this.#parts.spool.verify(file).catch(async (error) => {
      await this.#parts.spool.drop(file);
      throw error;
    });
  }

  async about(file: number): Promise<Found> {
    const known = this.#abouts.get(file);
    if (known !== undefined) return known;
    const entry = this.#entries.get(file);
    if (entry === undefined) throw trouble("ENOENT", `${this.folder}: file ${file} is not there`);
    const found = await this.#watched(() => readAbout(this.#parts, file, entry)).catch((error) => {
      throw asTrouble(error);
    });
    this.#remember(found);
    return found;
  }

  /** Resolves once a local copy exists in the folder that serves readers; the readers verify its checksum. */
  async bring(file: number): Promise<void> {
    if (await this.#parts.spool.has(file)) return;
    const going =
      this.#fetching.get(file) ??
      this.#fetches
        .run(() => this.#watched(() => this.#fetch(file)))
        .catch((error) => {
          throw asTrouble(error);
        })
        .finally(() => this.#fetching.delete(file));
    this.#fetching.set(file, going);
    await going;
  }

  async space(): Promise<[number, number]> {
    return [Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER];
  }

  get silentMs(): number {
    return this.#waiting === 0 && this.silence === "" ? 0 : performance.now() - this.#sinceMs;
  }

  /** Checks that the server answers and that this start still owns the device. @throws OBJECTS_UNAVAILABLE, STORE_CONFLICT. */
  async look(): Promise<void> {
    await this.#watched(() => this.#parts.claim.look());
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    const { claim, objects, spool } = this.#parts;
    const late = new Promise((resolve) => setTimeout(resolve, CLOSE_MS).unref());
    await Promise.race([Promise.allSettled([claim.release(), this.#sweep()]), late]);
    await objects.close();
    spool.close();
  }

  #beatIn(delayMs: number): void {
    if (this.#isClosed) return;
    this.#timer = setTimeout(async () => {
      await this.#watched(() => this.#parts.claim.beat()).catch(() => undefined);
      await this.#sweep();
      this.#beatIn(this.silence === "" ? BEAT_MS : AGAIN_MS);
    }, delayMs).unref();
  }

  async #fetch(file: number): Promise<void> {
    const entry = this.#entries.get(file);
    if (entry === undefined) throw trouble("ENOENT", `${this.folder}: file ${file} is not there`);
    await fetchFile(this.#parts, file, entry);
    // The file may have been removed while it was fetched.
    if (!this.#entries.has(file)) await this.#parts.spool.drop(file);
  }

  /** Deletes the end first: without it, the remaining parts are not a file. */
  async #delete(file: number, entry: Entry): Promise<void> {
    const { names } = this.#parts;
    const all = namesOfFile(file, entry).map((name) => `${names.objects}${name}`);
    // A file from an earlier start has no pending name any more.
    if (entry.epoch === this.#parts.claim.epoch) all.push(`${names.pending}${fileName(file, entry.epoch)}`);
    for (const name of all) this.#doomed.add(name);
    await this.#sweep(all);
  }

  async #sweep(names: Iterable<string> = this.#doomed): Promise<void> {
    for (const name of [...names]) {
      const isGone = await this.#parts.objects.delete(name).then(
        () => true,
        () => false,
      );
      if (!isGone) return;
      this.#doomed.delete(name);
    }
  }

  async #reserve(): Promise<void> {
    const { objects, names, claim } = this.#parts;
    await claim.confirm();
    const name = `${names.numbers}${numbersName(claim.epoch, this.#reserved + RESERVED)}`;
    await objects.put(name, Buffer.alloc(0));
    if (this.#reservation !== "") this.#doomed.add(this.#reservation);
    this.#reservation = name;
    this.#reserved += RESERVED;
  }

  #remember(found: Found): void {
    if (this.#abouts.size >= MAX_REMEMBERED) this.#abouts.delete(this.#abouts.keys().next().value as number);
    this.#abouts.set(found.file, found);
  }

  async #watched<T>(act: () => Promise<T>): Promise<T> {
    if (this.#waiting++ === 0 && this.silence === "") this.#sinceMs = performance.now();
    try {
      const value = await act();
      this.silence = "";
      this.#sinceMs = performance.now();
      return value;
    } catch (error) {
      if (error instanceof Failure && error.name === "OBJECTS_UNAVAILABLE") this.silence = error.message;
      throw error;
    } finally {
      this.#waiting--;
    }
  }
}
