// What an owner does with its files: stores what it was given, says what it keeps, makes room, and removes what is wanted no more.
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
  /** Of a device of the cold tier, which never makes room by itself: where a file goes that no object claims, or whose bytes are wrong. */
  readonly quarantine?: ((file: number) => Promise<void>) | undefined;
};

/** Objects on their way to the disk at once. */
const MAX_WRITING = 64;
/** So many are reported to the master, and as many asked for, by two calls: while they go, the others are written. */
const TOLD_AT_ONCE = 16;
const BATCH = 256;
const READ_AT_ONCE = 16;
const MAX_EVICTED = 64;
/** After a write that failed, nothing is stored for this long; twice as long if it fails again. */
const FIRST_PAUSE_MS = 1000;
const MAX_PAUSE_MS = 30_000;
/** Between two tries to announce every file. */
const ANNOUNCE_AGAIN_MS = 1000;

export class DiskWriter {
  readonly #parts: WriterParts;
  readonly #kept: Written[] = [];
  readonly #failed: FailedOrder[] = [];
  #writing = 0;
  /** Of objects on their way. */
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

  /** Objects that it takes now. */
  get writing(): number {
    return this.#writing + this.#kept.length + this.#failed.length;
  }

  get room(): number {
    return this.pause === undefined ? MAX_WRITING - this.#writing : 0;
  }

  /** Why it takes none for a while. */
  get pause(): Failure | undefined {
    if (this.#pause !== undefined && performance.now() > this.#pausedUntilMs) this.#pause = undefined;
    return this.#pause;
  }

  /** Once enough was stored, or failed, to tell the master of; all of what was under way, where that is less. */
  whenFree(): Promise<void> {
    return this.#isFree ? Promise.resolve() : this.#free.promise;
  }

  get #isFree(): boolean {
    const ended = this.#kept.length + this.#failed.length;
    return ended >= TOLD_AT_ONCE || (ended > 0 && this.#writing === 0);
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

  /** Tells the master what was stored since, and what was not. */
  async tell(): Promise<void> {
    const { session, diskID } = this.#parts;
    while (this.#kept.length > 0) {
      const batch = this.#kept.slice(0, BATCH);
      const { unwanted, waiting, code } = await keepWritten(session, diskID, batch);
      this.#kept.splice(0, batch.length, ...waiting);
      this.stored += batch.length - unwanted.length - waiting.length;
      for (const each of batch) if (!each.isProven && !unwanted.includes(each) && !waiting.includes(each)) this.#settle(Number(each.file));
      // Nobody else knows of a file whose object is another by now.
      this.removeAll(unwanted.map(({ file }) => Number(file)));
      if (waiting.length > 0) throw refusal(code, "saying what a disk has");
    }
    while (this.#failed.length > 0) {
      const batch = this.#failed.slice(0, BATCH);
      const outcome = await session.calls.call("FailOffloads", session.clientID, diskID, batch);
      if (!outcome.ok) throw refusal(outcome.code, "saying what could not be stored on a disk");
      this.#failed.splice(0, batch.length);
    }
  }

  #settle(file: number): void {
    // One that cannot be settled now is not there after the next start.
    this.#parts.files.settle(file).catch(() => undefined);
  }

  /** Every file there is, to a master that may not know of it; what it does not want goes. */
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

  /** The last announcement did not reach its end. */
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
      // One that cannot be removed now is announced, refused and removed at the next start.
      this.#parts.files.remove(file).catch(() => undefined);
    }
  }

  /** Files that are no object's, or not what was stored. */
  #disown(files: readonly number[]): void {
    const { quarantine, contents } = this.#parts;
    if (quarantine === undefined) this.removeAll(files);
    else
      for (const file of files) {
        if (!contents.has(file)) continue;
        contents.delete(file);
        // One that cannot be set aside now is found, and refused, at the next start.
        quarantine(file).catch(() => undefined);
      }
  }

  /** A reader says that its bytes are wrong: they are read, and the file goes where they are. */
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
      await this.#makeRoom(sizeBytes + OVERHEAD_BYTES);
      const file = await files.number();
      const about = { tenant, key, fingerprint, group, dataType, hardPin };
      const checksum = await files.write(file, BigUint64Array.of(order.address, 0n, order.sizeBytes), about, order.checksum);
      contents.add(file, sizeBytes);
      this.#pauseMs = FIRST_PAUSE_MS;
      this.#kept.push({ ...about, sizeBytes: order.sizeBytes, file: BigInt(file), task, checksum, isProven: order.checksum !== undefined });
    } catch (error) {
      this.#failed.push({ tenant, key, task });
      // What was to be stored is not there any more: nothing is wrong with the disk.
      if (!(error instanceof Failure) && troubleOf(error) !== "other") this.#pauseFor(error);
    } finally {
      release?.();
    }
  }

  #pauseFor(error: unknown): void {
    const trouble = troubleOf(error);
    // Those that were under way fail together.
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

  async #makeRoom(bytes: number): Promise<void> {
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

  /** The master names them no more before they go. */
  async #evict(bytes: number): Promise<void> {
    const { contents, files, session, diskID } = this.#parts;
    const chosen = contents.oldest(bytes, MAX_EVICTED);
    const found = await this.#abouts(chosen);
    const gone = found.map(({ tenant, key, file }) => ({ tenant, key, file: BigInt(file) }));
    const outcome = await session.calls.call("DropFiles", session.clientID, diskID, gone, false);
    if (!outcome.ok) throw refusal(outcome.code, "making room on a disk");
    for (const file of chosen) {
      contents.delete(file);
      await files.remove(file);
    }
  }

  async #announce(numbers: readonly number[]): Promise<void> {
    const { contents } = this.#parts;
    for (let at = 0; at < numbers.length; at += BATCH) {
      // What was stored since the master was told is told by its order.
      const told = new Set(this.#kept.map(({ file }) => Number(file)));
      const found = await this.#abouts(numbers.slice(at, at + BATCH).filter((file) => contents.has(file) && !told.has(file)));
      if (found.length === 0) continue;
      const batch = found.map(({ sizeBytes, file, ...about }) => ({ ...about, sizeBytes: BigInt(sizeBytes), file: BigInt(file), task: 0 }));
      const { unwanted, waiting } = await keepFiles(this.#parts.session, this.#parts.diskID, batch);
      this.#disown(unwanted.map(({ file }) => Number(file)));
      if (waiting.length > 0) return;
    }
    this.isAnnounced = true;
  }

  /** Of those that can be read; the others go. */
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
