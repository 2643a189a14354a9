// A disk of this client as a tier below memory: mounted at the master, filled on its orders, and unmounted when it stops answering.
import { randomUUID } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { asFailure, type Failure, fail } from "@svc/contract/failures.ts";
import { codes } from "../../rpc/codes.ts";
import type { DiskOrders } from "../../rpc/shapes.ts";
import { refusal } from "../session/refusal.ts";
import { DiskContents } from "./disk-contents.ts";
import { type ColdParts, DEFAULT_SHARE, type DiskParts, type DiskState } from "./disk-parts.ts";
import { DiskWriter } from "./disk-writer.ts";
import type { FileStore } from "./file-store.ts";
import { ObjectFiles } from "./object-files.ts";
import { promote } from "./promote.ts";

//   away ──mount──> mounted ──the master forgot it, the disk is silent──> away
//     └──────────────┴──stop──> stopped

const IDLE_MS = 100;
const RETRY_MS = 1000;
/** A disk that does not answer for this long is unmounted, so that readers use other replicas. */
const SILENT_MS = 10_000;
const MAX_OTHERS = 64;
const LOST: readonly string[] = ["SERVER_UNREACHABLE", "TIMED_OUT"];
const STOP_MS = 15_000;
/** The delay after a refusal that only another master would answer differently. */
const REFUSED_MS = 10_000;

export class OwnDisk {
  readonly #parts: DiskParts;
  readonly id: string;
  readonly #label: number;
  readonly #files: FileStore;
  readonly #contents: DiskContents;
  readonly #writer: DiskWriter;
  readonly #capacityBytes: number;
  readonly segmentName: string;
  #state: "away" | "mounted" | "stopped" = "away";
  #isEnabled = true;
  /** The master may assume that this client received an answer which was lost. */
  #isUnsure = false;
  #trouble = "";
  #mustAnnounce = false;
  #roundEnded = Promise.withResolvers<{ readonly offloads: number; readonly drops: number }>();
  #stopping = new AbortController();
  #loop: Promise<void> = Promise.resolve();

  private constructor(parts: DiskParts, opened: { id: string; files: FileStore; contents: DiskContents; capacityBytes: number; segmentName: string }) {
    this.#parts = parts;
    this.#label = parts.label ?? 0;
    this.id = opened.id;
    this.#files = opened.files;
    this.#contents = opened.contents;
    this.#capacityBytes = opened.capacityBytes;
    this.segmentName = opened.segmentName;
    this.#writer = new DiskWriter({
      session: parts.session,
      diskID: opened.id,
      files: opened.files,
      contents: opened.contents,
      capacityBytes: opened.capacityBytes,
      quarantine: parts.cold?.quarantine,
    });
  }

  /**
   * Creates the folder (not its parents) and reads its contents; the master is notified in the background.
   * @throws SETTING_INVALID where the folder cannot be used.
   */
  static async open(parts: DiskParts): Promise<OwnDisk> {
    const { folder, label = 0 } = parts;
    const files = parts.files?.store ?? ObjectFiles.open(folder, parts.syncs);
    try {
      const contents = await DiskContents.read(files, parts.cold?.quarantine);
      const [totalBytes] = await files.space();
      const capacityBytes = parts.capacityBytes > 0 ? parts.capacityBytes : Math.floor(totalBytes * DEFAULT_SHARE);
      if (parts.engine.getTransport("nvmeof") === undefined) await parts.engine.installTransport("nvmeof");
      const segmentName = await parts.engine.serveFolder(String(label), folder);
      const disk = new OwnDisk(parts, { id: parts.files?.id ?? (await idOf(folder)), files, contents, capacityBytes, segmentName });
      disk.#loop = disk.#run();
      return disk;
    } catch (error) {
      await files.close();
      throw error;
    }
  }

  get state(): DiskState {
    const { count, usedBytes } = this.#contents;
    const { reservedBytes, isAnnounced } = this.#writer;
    const isMounted = this.#state === "mounted";
    return { files: count, usedBytes, capacityBytes: this.#capacityBytes, isMounted, trouble: this.#trouble, reservedBytes, isAnnounced };
  }

  /** Returns the number of stored objects and of those being written. */
  get progress(): { readonly stored: number; readonly writing: number } {
    return { stored: this.#writer.stored, writing: this.#writer.writing };
  }

  /** Resolves with the number of orders of each kind in the master's next answer. */
  nextRound(): Promise<{ readonly offloads: number; readonly drops: number }> {
    return this.#roundEnded.promise;
  }

  /** Sets whether the device accepts objects; the master knows when this resolves. */
  async setSchedulable(cold: ColdParts, isSchedulable: boolean): Promise<void> {
    cold.isSchedulable = isSchedulable;
    if (this.#state === "mounted") await this.#declare();
  }

  /** Resolves with whether the master knows every file. */
  whenAnnounced(): Promise<boolean> {
    return this.#writer.whenAnnounced();
  }

  /** Ends the disk if it has no objects any more. @throws STORE_CONFLICT where it has one. */
  async giveUp(): Promise<void> {
    const { session, folder, engine } = this.#parts;
    const outcome = await session.calls.callUntil(STOP_MS, "UnmountDisk", session.clientID, this.id, true);
    if (!outcome.ok && outcome.code === codes.REPLICA_IS_NOT_READY) fail("STORE_CONFLICT", `there are objects in ${folder}: drain the device first`);
    if (!outcome.ok) throw refusal(outcome.code, `withdrawing the device at ${folder}`);
    this.#state = "stopped";
    this.#stopping.abort();
    await this.#loop;
    engine.stopFolder(String(this.#label));
    await this.#files.close();
  }

  /** Unmounts the disk: the master sends no more readers or objects here. Reads that have started continue. */
  async stop(): Promise<void> {
    this.#state = "stopped";
    this.#stopping.abort();
    // A running round of the loop might mount the disk again.
    await this.#loop;
    const { session } = this.#parts;
    const outcome = await session.calls.callUntil(STOP_MS, "UnmountDisk", session.clientID, this.id, false);
    if (!outcome.ok) throw refusal(outcome.code, `withdrawing the disk at ${this.#parts.folder}`);
  }

  /** Stops like `stop`, but a master that does not answer finds out by itself. Waits for no disk. */
  async close(): Promise<void> {
    const wasMounted = this.#state === "mounted";
    this.#state = "stopped";
    this.#stopping.abort();
    await this.#loop;
    const { session } = this.#parts;
    if (wasMounted && session.isJoined) await session.calls.call("UnmountDisk", session.clientID, this.id, false).catch(() => undefined);
    this.#parts.engine.stopFolder(String(this.#label));
    await this.#files.close();
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      let delayMs = IDLE_MS;
      // New results do not cut the delay after a failed round short: they are reported once it has passed.
      let wakes = false;
      try {
        if (this.#files.silentMs > SILENT_MS) await this.#leave(`${this.#files.silence}, for ${SILENT_MS / 1000} s`);
        else if (this.#state === "away") delayMs = await this.#mount();
        else {
          if (await this.#round()) delayMs = 0;
          wakes = this.#state === "mounted";
        }
      } catch (error) {
        if (signal.aborted) return;
        const failure = asFailure(error);
        if (this.#state === "mounted") {
          // The next master to answer may have lost its log.
          if (LOST.includes(failure.name)) this.#mustAnnounce ||= this.#parts.cold?.announces ?? true;
          if (failure.details["storeCode"] === codes.SEGMENT_NOT_FOUND) this.#state = "away";
        }
        this.#note(failure);
        delayMs = RETRY_MS;
      }
      if (delayMs > 0)
        await Promise.race([sleep(delayMs, undefined, { signal, ref: false }).catch(() => undefined), ...(wakes ? [this.#writer.whenFree()] : [])]);
    }
  }

  async #mount(): Promise<number> {
    // A disk that does not answer would be unmounted again at once.
    if (this.#files.silentMs > RETRY_MS) return RETRY_MS;
    const code = await this.#declare();
    if (code === codes.UNABLE_OFFLOAD) {
      this.#note(refusal(code, "this master takes no disks (its setting store.enable_offload is off)"));
      return REFUSED_MS;
    }
    if (code === codes.ILLEGAL_CLIENT) throw refusal(code, `another live owner, or a later start of this one, serves the device at ${this.#parts.folder}`);
    if (code !== codes.OK) throw refusal(code, `mounting the disk at ${this.#parts.folder}`);
    if (this.#state !== "away") return 0;
    this.#state = "mounted";
    this.#trouble = "";
    this.#parts.onEvent?.({ type: "disk-mounted", folder: this.#parts.folder, files: this.#contents.count });
    // The announcement waits for the first round: files that are to be dropped would be refused, and a device of the cold tier would quarantine them.
    this.#mustAnnounce = this.#parts.cold?.announces ?? true;
    return 0;
  }

  async #declare(): Promise<number> {
    const { session, engine } = this.#parts;
    const disk = {
      id: this.id,
      label: this.#label,
      isOurs: true,
      isEnabled: this.#isEnabled && (this.#parts.cold?.isSchedulable ?? true),
      capacityBytes: BigInt(this.#capacityBytes),
      endpoint: engine.getServerName(),
    };
    const mounted = await session.calls.call("MountDisk", session.clientID, disk);
    const fills = this.#parts.cold?.fills;
    if (!mounted.ok || fills === undefined) return mounted.ok ? codes.OK : mounted.code;
    const filled = await session.calls.call("FillDevice", session.clientID, this.id, fills.tenant, fills.what === "evicted" ? 1 : 2);
    return filled.ok ? codes.OK : filled.code;
  }

  /** Runs one round with the master. Returns true if there is more to do at once. */
  async #round(): Promise<boolean> {
    const { session } = this.#parts;
    const pause = this.#writer.pause;
    if ((pause === undefined) !== this.#isEnabled) {
      this.#isEnabled = pause === undefined;
      this.#trouble = pause?.message ?? "";
      if (pause !== undefined) this.#parts.onEvent?.({ type: "disk-paused", folder: this.#parts.folder, failure: pause });
      this.#isUnsure = true;
    }
    if (this.#isUnsure) await this.#declare();
    this.#isUnsure = true;
    await this.#writer.report();
    const free = this.#parts.cold?.isSchedulable === false ? 0 : this.#writer.free;
    const outcome = await session.calls.call("TakeDiskOrders", session.clientID, this.id, free, MAX_OTHERS);
    if (!outcome.ok) {
      if (outcome.code !== codes.SEGMENT_NOT_FOUND) throw refusal(outcome.code, "asking for objects to store");
      this.#state = "away";
      return true;
    }
    this.#isUnsure = false;
    const { offload, drop } = outcome.value;
    const isMore = this.#obey(outcome.value);
    if ((this.#mustAnnounce || this.#writer.isAnnounceDue) && drop.length < MAX_OTHERS) {
      this.#mustAnnounce = false;
      this.#writer.announceAll();
    }
    this.#roundEnded.resolve({ offloads: offload.length, drops: drop.length });
    this.#roundEnded = Promise.withResolvers();
    return isMore;
  }

  #obey({ offload, promote: wanted, drop, check }: DiskOrders): boolean {
    for (const order of offload) this.#writer.store(order);
    this.#writer.removeAll(drop.map(Number));
    for (const reported of check) this.#writer.check(reported);
    for (const order of wanted) {
      promote({ ...this.#parts, segmentName: this.segmentName }, order).catch((error) => this.#note(asFailure(error)));
    }
    return drop.length === MAX_OTHERS;
  }

  async #leave(why: string): Promise<void> {
    if (this.#state !== "mounted") {
      await sleep(RETRY_MS, undefined, { signal: this.#stopping.signal, ref: false }).catch(() => undefined);
      return;
    }
    const { session } = this.#parts;
    const outcome = await session.calls.call("UnmountDisk", session.clientID, this.id, false);
    if (!outcome.ok) throw refusal(outcome.code, "withdrawing a disk that does not answer");
    this.#state = "away";
    this.#note(refusal(codes.UNABLE_OFFLOAD, `${why}; readers are sent elsewhere until it does`));
  }

  #note(failure: Failure): void {
    if (this.#trouble === failure.message) return;
    this.#trouble = failure.message;
    this.#parts.onEvent?.({ type: "disk-away", folder: this.#parts.folder, failure });
  }
}

/** Returns the folder's own id: its files belong to that id, whichever process serves them. */
async function idOf(folder: string): Promise<string> {
  const path = join(folder, "id");
  const known = (await readFile(path, "utf8").catch(() => "")).trim();
  if (/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(known)) return known;
  const id = randomUUID();
  await writeFile(path, `${id}\n`);
  return id;
}
