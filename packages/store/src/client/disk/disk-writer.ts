// The owner's work on its files: stores ordered objects, announces files, evicts, and removes dropped files.
import { asFailure, Failure } from "@svc/contract/failures.ts";
import type { FailedOrder, FileOf, Order } from "../../rpc/shapes.ts";
import { refusal } from "../session/refusal.ts";
import type { Session } from "../session/session.ts";
import type { DiskContents } from "./disk-contents.ts";
import type { FileStore, Found } from "./file-store.ts";
import { keepFiles, keepWritten, type Written } from "./keep.ts";
import { OVERHEAD_BYTES, troubleOf } from "./object-files.ts";

export type WriterParts = {
  readonly session: Session;
  readonly diskID: string;
  readonly files: FileStore;
  readonly contents: DiskContents;
  readonly capacityBytes: number;
  /** Set for a device of the cold tier, which never evicts by itself: receives files that no object refers to, or whose bytes are damaged. */
  readonly quarantine?: ((file: number) => Promise<void>) | undefined;
};

/** Bounds the objects that are being written at once. */
const MAX_WRITING = 64;
/** The number of results per report to the master, while the remaining objects are being written. */
const REPORTED_AT_ONCE = 16;
const BATCH = 256;
const READ_AT_ONCE = 16;
const MAX_EVICTED = 64;
/** The pause after a failed write; each further failure doubles it. */
const FIRST_PAUSE_MS = 1000;
const MAX_PAUSE_MS = 30_000;
/** The interval between two attempts to announce every file. */
const ANNOUNCE_AGAIN_MS = 1000;

export class DiskWriter {
  readonly #parts: WriterParts;
  readonly #kept: Written[] = [];
  readonly #failed: FailedOrder[] = [];
  #writing = 0;
  /** The bytes of objects that are being written. */
  reservedBytes = 0;
  stored = 0;
  isAnnounced = false;
  #free = Promise.withResolvers<void>();
  #evicting: Promise<void> | undefined;
  #announcing: Promise<void> | undefined;
  #announceAgainMs = Number.POSITIVE_INFINITY;
  #pausedUntilMs = 0;
  #pauseMs = FIRST_PAUSE_MS;
  #pause: Failure | undefined;

  constructor(parts: WriterParts) {
    this.#parts = parts;
  }

  /** The number of objects that are being written or not reported yet. */
  get writing(): number {
    return this.#writing + this.#kept.length + this.#failed.length;
  }

  get free(): number {
    return this.pause === undefined ? MAX_WRITING - this.#writing : 0;
  }

  /** The reason why the disk accepts nothing for a while. */
  get pause(): Failure | undefined {
    if (this.#pause !== undefined && performance.now() > this.#pausedUntilMs) this.#pause = undefined;
    return this.#pause;
  }

  /** Resolves once enough writes have ended for a report to the master, or all of them if there are fewer. */
  whenFree(): Promise<void> {
    return this.#isFree ? Promise.resolve() : this.#free.promise;
  }

  get #isFree(): boolean {
    const ended = this.#kept.length + this.#failed.length;
    return ended >= REPORTED_AT_ONCE || (ended > 0 && this.#writing === 0);
  }

  store(order: Order): void {
    const bytes = Number(order.sizeBytes) + OVERHEAD_BYTES;
    this.#writing++;
    this.reservedBytes += bytes;
    void this.#store(order).finally(() => {
      this.#writing--;
      this.reservedBytes -= bytes;
      if (!this.#isFree) return;
      this.#free.resolve();
      this.#free = Promise.withResolvers<void>();
    });
  }

  /** Reports to the master which objects were stored and which failed. */
  async report(): Promise<void> {
    const { session, diskID } = this.#parts;
    while (this.#kept.length > 0) {
      const batch = this.#kept.slice(0, BATCH);
      const { unwanted, waiting, code } = await keepWritten(session, diskID, batch);
      this.#kept.splice(0, batch.length, ...waiting);
      this.stored += batch.length - unwanted.length - waiting.length;
      for (const each of batch) if (!each.isProven && !unwanted.includes(each) && !waiting.includes(each)) this.#settle(Number(each.file));
      // The object has been replaced, and only this client knows of the file.
      this.removeAll(unwanted.map(({ file }) => Number(file)));
      if (waiting.length > 0) throw refusal(code, "reporting the files of a disk");
    }
    while (this.#failed.length > 0) {
      const batch = this.#failed.slice(0, BATCH);
      const outcome = await session.calls.call("FailOffloads", session.clientID, diskID, batch);
      if (!outcome.ok) throw refusal(outcome.code, "reporting what could not be stored on a disk");
      this.#failed.splice(0, batch.length);
    }
  }

  #settle(file: number): void {
    // If settling fails, the file is absent after the next start.
    this.#parts.files.settle(file).catch(() => undefined);
  }

  /** Announces every file to a master that may not know it; files that the master refuses are removed. */
  announceAll(): void {
    const files = this.#parts.contents.files();
    const before = this.#announcing ?? Promise.resolve();
    this.isAnnounced = false;
    this.#announceAgainMs = Number.POSITIVE_INFINITY;
    this.#announcing = before
      .then(() => this.#announce(files))
      .catch(() => undefined)
      .finally(() => {
        if (!this.isAnnounced) this.#announceAgainMs = performance.now() + ANNOUNCE_AGAIN_MS;
      });
  }

  /** True when the last announcement failed and has to be retried. */
  get isAnnounceDue(): boolean {
    return performance.now() >= this.#announceAgainMs;
  }

  async whenAnnounced(): Promise<boolean> {
    await this.#announcing;
    return this.isAnnounced;
  }

  removeAll(files: readonly number[]): void {
    for (const file of files) {
      if (!this.#parts.contents.has(file)) continue;
      this.#parts.contents.delete(file);
      // If removing fails, the file is announced, refused and removed at the next start.
      this.#parts.files.remove(file).catch(() => undefined);
    }
  }

  /** Discards files that belong to no object, or whose bytes differ from what was stored. */
  #disown(files: readonly number[]): void {
    const { quarantine, contents } = this.#parts;
    if (quarantine === undefined) this.removeAll(files);
    else
      for (const file of files) {
        if (!contents.has(file)) continue;
        contents.delete(file);
        // If quarantining fails, the file is announced and refused at the next start.
        quarantine(file).catch(() => undefined);
      }
  }

  /** A reader reported wrong bytes: the file is verified, and dropped if they are damaged. */
  check({ tenant, key, file }: FileOf): void {
    const { files, session, diskID } = this.#parts;
    void files
      .verify(Number(file))
      .catch(async (error) => {
        const trouble = troubleOf(error);
        if (trouble !== "damaged" && trouble !== "gone") return;
        const outcome = await session.calls.call("DropFiles", session.clientID, diskID, [{ tenant, key, file }], trouble === "damaged");
        if (outcome.ok) this.#disown([Number(file)]);
      })
      .catch(() => undefined);
  }

  async #store(order: Order): Promise<void> {
    const { files, contents, session } = this.#parts;
    const sizeBytes = Number(order.sizeBytes);
    const { tenant, key, fingerprint, group, dataType, hardPin, task } = order;
    const release = session.segments.hold(order.address, sizeBytes);
    try {
      if (release === undefined) throw new Failure("STORE_CONFLICT", `the memory of key ${key} is no longer mounted`);
      await this.#makeSpace(sizeBytes + OVERHEAD_BYTES);
      const file = await files.number();
      const about = { tenant, key, fingerprint, group, dataType, hardPin };
      const checksum = await files.write(file, BigUint64Array.of(order.address, 0n, order.sizeBytes), about, order.checksum);
      contents.add(file, sizeBytes);
      this.#pauseMs = FIRST_PAUSE_MS;
      this.#kept.push({ ...about, sizeBytes: order.sizeBytes, file: BigInt(file), task, checksum, isProven: order.checksum !== undefined });
    } catch (error) {
      this.#failed.push({ tenant, key, task });
      // The object in memory was replaced meanwhile, which is not the disk's fault.
      if (!(error instanceof Failure) && troubleOf(error) !== "other") this.#pauseFor(error);
    } finally {
      release?.();
    }
  }

  #pauseFor(error: unknown): void {
    const trouble = troubleOf(error);
    // All writes that were running fail together; only the first one extends the pause.
    if (this.pause !== undefined) return;
    this.#pausedUntilMs = performance.now() + this.#pauseMs;
    const seconds = this.#pauseMs / 1000;
    this.#pauseMs = Math.min(MAX_PAUSE_MS, this.#pauseMs * 2);
    const { folder } = this.#parts.files;
    this.#pause =
      trouble === "full"
        ? new Failure(
            "DISK_FULL",
            `${folder}: the file system has no room; nothing is stored there for ${seconds} s. Make room, or set a smaller size for the disk`,
          )
        : new Failure("INTERNAL", `${folder}: ${asFailure(error).message}; nothing is stored there for ${seconds} s`);
  }

  async #makeSpace(bytes: number): Promise<void> {
    const { contents, capacityBytes } = this.#parts;
    if (bytes > capacityBytes) throw new Failure("CAPACITY_EXHAUSTED", `an object of ${bytes} bytes is larger than the disk, which may hold ${capacityBytes}`);
    if (this.#parts.quarantine !== undefined) {
      if (contents.usedBytes + this.reservedBytes > capacityBytes)
        throw new Failure("CAPACITY_EXHAUSTED", `the device has no room for ${bytes} bytes: ${contents.usedBytes} of ${capacityBytes} are used`);
      return;
    }
    while (contents.usedBytes + bytes > capacityBytes) {
      this.#evicting ??= this.#evict(contents.usedBytes + bytes - capacityBytes).finally(() => {
        this.#evicting = undefined;
      });
      await this.#evicting;
    }
  }

  /** Evicts files. The master drops their replicas before they are deleted. */
  async #evict(bytes: number): Promise<void> {
    const { contents, files, session, diskID } = this.#parts;
    const chosen = contents.oldest(bytes, MAX_EVICTED);
    const found = await this.#abouts(chosen);
    const gone = found.map(({ tenant, key, file }) => ({ tenant, key, file: BigInt(file) }));
    const outcome = await session.calls.call("DropFiles", session.clientID, diskID, gone, false);
    if (!outcome.ok) throw refusal(outcome.code, "evicting files of a disk");
    for (const file of chosen) {
      contents.delete(file);
      await files.remove(file);
    }
  }

  async #announce(numbers: readonly number[]): Promise<void> {
    const { contents } = this.#parts;
    for (let at = 0; at < numbers.length; at += BATCH) {
      // Files whose result was not reported yet are excluded, since that report names their order.
      const reported = new Set(this.#kept.map(({ file }) => Number(file)));
      const found = await this.#abouts(numbers.slice(at, at + BATCH).filter((file) => contents.has(file) && !reported.has(file)));
      if (found.length === 0) continue;
      const batch = found.map(({ sizeBytes, file, ...about }) => ({ ...about, sizeBytes: BigInt(sizeBytes), file: BigInt(file), task: 0 }));
      const { unwanted, waiting } = await keepFiles(this.#parts.session, this.#parts.diskID, batch);
      this.#disown(unwanted.map(({ file }) => Number(file)));
      if (waiting.length > 0) return;
    }
    this.isAnnounced = true;
  }

  /** Returns the descriptions of the files that can be read; damaged files are discarded. */
  async #abouts(numbers: readonly number[]): Promise<Found[]> {
    const found: Found[] = [];
    for (let at = 0; at < numbers.length; at += READ_AT_ONCE) {
      const some = await Promise.all(
        numbers.slice(at, at + READ_AT_ONCE).map((file) =>
          this.#parts.files.about(file).catch((error) => {
            if (troubleOf(error) !== "failed") this.#disown([file]);
            return undefined;
          }),
        ),
      );
      for (const each of some) if (each !== undefined) found.push(each);
    }
    return found;
  }
}
