// Stores records on disk: changes are appended to files, outdated files are rewritten, and space is reserved for deletions on a full disk.
import { existsSync, statSync } from "node:fs";
import { type FileHandle, mkdir, open, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fail, isDiskFull } from "@svc/contract/failures.ts";
import { type Change, frameBytes, printFrame } from "./frames.ts";
import type { Journal, Place, Records } from "./records.ts";
import { type Damage, listSegments, newSegment, readSegment, type Segment } from "./segments.ts";
import type { Durability } from "./settings.ts";

/** A file is closed at this size; a larger record gets a file of its own. */
const SEGMENT_BYTES = 512 << 10;
/** The reserve is allocated in advance. Values are accepted only while it exists; deletions, and rewriting a file, may use its space. */
const RESERVE_BYTES = 2 * SEGMENT_BYTES;
/** More small files than this are merged at the start. */
const MAX_SMALL = 8;
/** The interval of attempts to allocate a missing reserve. */
const RESERVE_EVERY_MS = 1000;
/** Outdated bytes up to this amount, plus the size of the live records, are tolerated. */
const SLACK_BYTES = 4 * SEGMENT_BYTES;

export type OpenJournal = Journal & {
  /** Reads everything that is readable into the records. */
  restore(records: Records): Promise<{ restored: number; damages: Damage[] }>;
  close(): Promise<void>;
};

/** The caller has locked the home. @throws SETTING_INVALID when the folder cannot be used. */
export async function openJournal(home: string, durability: Exclude<Durability, "memory">): Promise<OpenJournal> {
  const folder = join(home, "metadata", "records");
  const reserve = join(home, "metadata", "reserve");
  const isSynced = durability === "disk";
  let segments: Segment[] = [];
  let active: { segment: Segment; file: FileHandle } | undefined;
  let hasReserve = false;
  let reserveLookedForMs = Number.NEGATIVE_INFINITY;
  try {
    // On a full disk the folder may be created later: see openActive.
    await mkdir(folder, { recursive: true, mode: 0o700 }).catch((error) => {
      if (!isDiskFull(error)) throw error;
    });
    segments = listSegments(folder);
    hasReserve = statSync(reserve, { throwIfNoEntry: false })?.size === RESERVE_BYTES;
  } catch (error) {
    fail("SETTING_INVALID", `the records cannot be stored in ${folder}: ${(error as Error).message}`, { cause: error });
  }

  async function syncFolder(): Promise<void> {
    if (!isSynced) return;
    await using handle = await open(folder, "r");
    await handle.sync();
  }

  async function openActive(wanted: number): Promise<{ segment: Segment; file: FileHandle }> {
    if (active !== undefined && (active.segment.sizeBytes === 0 || active.segment.sizeBytes + wanted <= SEGMENT_BYTES)) return active;
    await active?.file.close();
    active = undefined;
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const segment = newSegment(folder, (segments.at(-1)?.number ?? 0) + 1);
    active = { segment, file: await open(segment.file, "a", 0o600) };
    segments.push(segment);
    await syncFolder();
    return active;
  }

  async function append(changes: readonly Change[]): Promise<Segment> {
    const wanted = changes.reduce((sum, { key, value }) => sum + key.length + (value?.length ?? 0) + 64, 0);
    const { segment, file } = await openActive(wanted);
    const before = segment.sizeBytes;
    try {
      const frames = changes.map((change) => printFrame(segment.marker, change));
      let bytes = 0;
      for (const frame of frames) bytes += frame.length;
      await writeAll(file, Buffer.concat(frames, bytes));
      if (isSynced) await file.datasync();
      segment.sizeBytes += bytes;
      return segment;
    } catch (error) {
      try {
        // A refused change must not reappear after a restart.
        await file.truncate(before);
        if (isSynced) await file.datasync();
      } catch {
        await file.close().catch(() => {});
        active = undefined;
      }
      throw error;
    }
  }

  async function write(changes: readonly Change[]): Promise<Place> {
    try {
      const hasValues = changes.some(({ value }) => value !== undefined);
      if (hasValues && !hasReserve && !(await makeReserve()))
        throw Object.assign(new Error("the only room left is reserved for deletions"), { code: "ENOSPC" });
      return await append(changes).catch(async (error) => {
        if (!isDiskFull(error) || hasValues) throw error;
        await dropReserve();
        return append(changes);
      });
    } catch (error) {
      if (!isDiskFull(error)) throw error;
      return fail("DISK_FULL", `the disk that holds ${folder} is full; make room there, or delete records`, { cause: error });
    }
  }

  async function dropReserve(): Promise<void> {
    hasReserve = false;
    reserveLookedForMs = performance.now();
    await rm(reserve, { force: true });
  }

  async function makeReserve(atOnce = false): Promise<boolean> {
    const now = performance.now();
    if (hasReserve || (!atOnce && now - reserveLookedForMs < RESERVE_EVERY_MS)) return hasReserve;
    reserveLookedForMs = now;
    try {
      await writeFile(reserve, Buffer.alloc(RESERVE_BYTES, 0xff), { mode: 0o600, flush: true });
      hasReserve = true;
    } catch {
      await rm(reserve, { force: true });
    }
    return hasReserve;
  }

  /** Writes the file's live records to another file and deletes it. Returns false if that would free little space. */
  async function rewrite(victim: Segment, records: Records, isWorthIt: (bytes: number) => boolean): Promise<boolean> {
    const keys = new Map<string, boolean>();
    readSegment(victim, join(home, "metadata", "damaged"), ({ key, value }) => keys.set(key, value !== undefined));
    if (victim.isUnreadable) return false;
    const isOldest = segments[0] === victim;
    const changes: Change[] = [];
    for (const key of keys.keys()) {
      const stored = records.stored(key);
      if (stored?.place === victim) changes.push({ key, value: stored.value, leaseMs: stored.leaseMs });
      // A deletion must be kept as long as the deleted record may exist in an older file.
      else if (stored === undefined && !isOldest) changes.push({ key, value: undefined, leaseMs: undefined });
    }
    if (!isWorthIt(changes.reduce((sum, change) => sum + frameBytes(change), 0))) return false;
    if (active?.segment === victim) {
      await active.file.close();
      active = undefined;
    }
    if (changes.length > 0) {
      const place = await append(changes);
      for (const { key, value } of changes) if (value !== undefined) records.move(key, place);
    }
    segments = segments.filter((segment) => segment !== victim);
    await rm(victim.file, { force: true });
    await syncFolder();
    return true;
  }

  async function tidy(records: Records, lacksSpace: boolean): Promise<boolean> {
    if (!lacksSpace && !hasReserve) await makeReserve();
    let live = 0;
    let total = 0;
    for (const { liveBytes, sizeBytes } of segments) {
      live += liveBytes;
      total += sizeBytes;
    }
    if (total - live <= (lacksSpace ? 0 : live + SLACK_BYTES)) return false;
    const halfGone = (segment: Segment) => segment.liveBytes <= segment.sizeBytes / 2 && segment.sizeBytes > 0 && !segment.isUnreadable;
    const isNew = (segment: Segment) => segment.triedLiveBytes !== segment.liveBytes || segment === segments[0];
    const victims = segments.filter((segment) => halfGone(segment) && isNew(segment)).sort((a, b) => a.liveBytes - b.liveBytes);
    if (victims.length > 0 && lacksSpace) await dropReserve();
    let isDone = false;
    for (const victim of victims) {
      victim.triedLiveBytes = victim.liveBytes;
      isDone = await rewrite(victim, records, (bytes) => bytes <= victim.sizeBytes / 2);
      if (isDone) break;
    }
    if (lacksSpace) await makeReserve(true);
    return isDone;
  }

  return {
    write,
    tidy,
    async restore(records) {
      const former = join(home, "metadata", "records.db");
      if (existsSync(former))
        fail("HOST_UNSUITABLE", `${former} was written by a version of svc before 0.1.0 and is unchanged; move it away, or use another --home`);
      const damages: Damage[] = [];
      const damaged: Segment[] = [];
      for (const segment of segments) {
        const found = readSegment(segment, join(home, "metadata", "damaged"), (change) => records.load(change, segment));
        if (found.length > 0 && !segment.isUnreadable) damaged.push(segment);
        damages.push(...found);
      }
      await makeReserve(true);
      // Rewriting damaged files avoids finding and quarantining the damage at each start; small ones are merged because each start leaves one.
      const small = segments.filter(({ sizeBytes, isUnreadable }) => sizeBytes < SEGMENT_BYTES / 4 && !isUnreadable);
      if (small.length > MAX_SMALL) damaged.push(...small.filter((segment) => !damaged.includes(segment)));
      for (const segment of damaged) await rewrite(segment, records, () => true).catch(() => false);
      return { restored: records.size, damages };
    },
    async close() {
      await active?.file.close();
    },
  };
}

async function writeAll(file: FileHandle, bytes: Buffer): Promise<void> {
  for (let at = 0; at < bytes.length; ) at += (await file.write(bytes, at)).bytesWritten;
}
