// Objects as files of a bucket, each whole or not there: the file store of a device of kind s3.
import { open } from "node:fs/promises";
import { Failure, fail } from "@svc/contract/failures.ts";
import type { Objects } from "@svc/kit/objects/objects.ts";
import type { FileStore } from "../disk/file-store.ts";
import { type About, type Found, troubleOf } from "../disk/object-files.ts";
import type { LocalMemory } from "../memory.ts";
import { checksumOf } from "../put.ts";
import type { BucketClaim } from "./bucket-claim.ts";
import { listBucket } from "./bucket-list.ts";
import { fileName, type Names, numbersName, PART_BYTES } from "./bucket-names.ts";
import { type Entry, moveObject, namesOfFile } from "./bucket-objects.ts";
import type { BucketSpool } from "./bucket-spool.ts";
import { foundIn, MOST_BEHIND, TRAILER_BYTES, trailerOf } from "./bucket-tail.ts";
import { Slots } from "./slots.ts";

//  write: a copy here, checked ──> [its name under pending] ──> parts ──> its end ──> [pending goes] ──> the file is there
//  What is not proven to be what its object had stays under pending until its master vouches for it: a start that finds it there sets it aside.

export type BucketParts = {
  readonly objects: Objects;
  readonly names: Names;
  readonly claim: BucketClaim;
  readonly spool: BucketSpool;
  readonly memory: LocalMemory;
};

/** Numbers reserved at a time: those left over at a crash are lost. */
const RESERVED = 4096;
const MAX_FILE = 2 ** 28 - 1;
/** Each has a part in memory. */
const UPLOADS = 4;
const FETCHES = 4;
const MAX_WAITING = 1024;
const MAX_REMEMBERED = 100_000;
/** The end of a file that is read first: nearly always all that it says of itself. */
const FIRST_END_BYTES = 2048;
/** Between two renewals of the owner's name there; sooner while the server does not answer, so that its return is noticed. */
const BEAT_MS = 10_000;
const AGAIN_MS = 1000;
const CLOSE_MS = 5000;

export class BucketFiles implements FileStore {
  readonly folder: string;
  readonly #parts: BucketParts;
  #entries = new Map<number, Entry>();
  readonly #abouts = new Map<number, Found>();
  readonly #uploads = new Slots(UPLOADS, MAX_WAITING);
  readonly #fetches = new Slots(FETCHES, MAX_WAITING);
  readonly #fetching = new Map<number, Promise<void>>();
  /** Names that nothing has any more and that could not be deleted yet. */
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
      const entry = await this.#uploads.run(() => this.#watched(() => this.#upload(file, sizeBytes, expected !== undefined)));
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

  /** Set aside, under its own name. */
  async setAside(file: number): Promise<void> {
    const { objects, names, spool } = this.#parts;
    const entry = this.#entries.get(file);
    if (entry === undefined) return;
    this.#entries.delete(file);
    this.#abouts.delete(file);
    await spool.drop(file);
    for (const name of namesOfFile(file, entry).reverse())
      await this.#watched(() => moveObject(objects, `${names.objects}${name}`, `${names.quarantine.final}${name}`));
  }

  /** Of the bucket's own bytes, whatever copy is here. */
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
    const found = await this.#watched(() => this.#readAbout(file, entry)).catch((error) => {
      throw asTrouble(error);
    });
    this.#remember(found);
    return found;
  }

  /** Once a copy of it is in the folder that readers are served from; whether its bytes are right, they see themselves. */
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

  /** Whether the server answers, and the device is still this start's. @throws OBJECTS_UNAVAILABLE, STORE_CONFLICT. */
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

  async #upload(file: number, sizeBytes: number, isProven: boolean): Promise<Entry> {
    const { objects, names, claim, spool } = this.#parts;
    await claim.confirm();
    const parts = sizeBytes > PART_BYTES ? Math.ceil(sizeBytes / PART_BYTES) - 1 : 0;
    const name = fileName(file, claim.epoch);
    const from = await open(spool.pathOf(file), "r");
    const entry: Entry = { epoch: claim.epoch, endBytes: (await from.stat()).size - parts * PART_BYTES, parts };
    try {
      const read = async (at: number, length: number) => {
        const { buffer, bytesRead } = await from.read(Buffer.allocUnsafe(length), 0, length, at);
        return bytesRead === length ? buffer : fail("INTERNAL", `${spool.pathOf(file)} became shorter while it was read`);
      };
      if (parts > 0 || !isProven) await objects.put(`${names.pending}${name}`, Buffer.alloc(0));
      for (let part = 1; part <= parts; part++) await objects.put(`${names.objects}${name}.${part}`, await read((part - 1) * PART_BYTES, PART_BYTES));
      await objects.put(`${names.objects}${name}`, await read(parts * PART_BYTES, entry.endBytes));
      if (parts > 0 && isProven) await objects.delete(`${names.pending}${name}`);
      return entry;
    } catch (error) {
      // Whether the server has it after all is not known.
      await this.#delete(file, entry);
      throw error;
    } finally {
      await from.close();
    }
  }

  /** Its end first: what is left without it is no file. */
  async #delete(file: number, entry: Entry): Promise<void> {
    const { names } = this.#parts;
    const all = namesOfFile(file, entry).map((name) => `${names.objects}${name}`);
    // Of one that was written in an earlier life nothing is pending.
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

  async #fetch(file: number): Promise<void> {
    const { objects, names, spool } = this.#parts;
    const entry = this.#entries.get(file);
    if (entry === undefined) throw trouble("ENOENT", `${this.folder}: file ${file} is not there`);
    const name = `${names.objects}${fileName(file, entry.epoch)}`;
    const get = async (key: string, sizeBytes: number, code: string) => {
      const bytes = await objects.get(key, sizeBytes);
      if (bytes === undefined) throw trouble(code, `${objects.url}/${key} is not there`);
      if (bytes.length !== sizeBytes) throw trouble("EBADMSG", `${objects.url}/${key}: expected ${sizeBytes} bytes, got ${bytes.length}`);
      return bytes;
    };
    await spool.bring(file, async (write) => {
      for (let part = 1; part <= entry.parts; part++) await write(await get(`${name}.${part}`, PART_BYTES, "EBADMSG"));
      await write(await get(name, entry.endBytes, "ENOENT"));
    });
    // It was removed meanwhile.
    if (!this.#entries.has(file)) await spool.drop(file);
  }

  async #readAbout(file: number, entry: Entry): Promise<Found> {
    const { objects, names, memory } = this.#parts;
    const key = `${names.objects}${fileName(file, entry.epoch)}`;
    const damaged = () => trouble("EBADMSG", `${objects.url}/${key} is damaged`);
    const last = async (length: number) => {
      const start = Math.max(0, entry.endBytes - length);
      const bytes = await objects.get(key, MOST_BEHIND, { start, end: entry.endBytes });
      if (bytes === undefined) throw trouble("ENOENT", `${objects.url}/${key} is not there`);
      if (bytes.length !== entry.endBytes - start) throw damaged();
      return bytes;
    };
    let end = await last(FIRST_END_BYTES);
    const trailer = trailerOf(end, entry.parts * PART_BYTES + entry.endBytes);
    if (trailer === undefined || entry.endBytes < trailer.aboutBytes + TRAILER_BYTES) throw damaged();
    if (trailer.aboutBytes + TRAILER_BYTES > end.length) end = await last(trailer.aboutBytes + TRAILER_BYTES);
    const found = foundIn(file, end, trailer, (bytes) => {
      const lent = memory.forReading([bytes]);
      try {
        return checksumOf(lent.parts);
      } finally {
        lent.end(false);
      }
    });
    if (found === undefined) throw damaged();
    return found;
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

const trouble = (code: string, message: string): Error => Object.assign(new Error(message), { code });

/** As `troubleOf` knows it. */
function asTrouble(error: unknown): Error {
  if (!(error instanceof Failure)) return error as Error;
  if (error.name === "DISK_FULL") return trouble("ENOSPC", error.message);
  // An object of another size than was written there.
  if (error.name === "PAYLOAD_TOO_LARGE") return trouble("EBADMSG", error.message);
  return error.name === "TOO_MANY_REQUESTS" ? error : trouble("EIO", error.message);
}
