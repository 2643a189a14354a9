// Masters that die with their log at any moment while an owner stores objects on its disk: every file that was whole by then is read afterwards.
import assert from "node:assert/strict";
import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { until } from "@svc/harness/until.ts";
import { openClient } from "./client.ts";
import { startMaster } from "./master.ts";
import { bytesOf, filesIn, makeFolder } from "./ssd.ts";

const MIB = 2 ** 20;
const OBJECTS = 8;
const TRAILER_BYTES = 40;
const ABOUT_AT = 24;

/** Keys as the files say them. */
function keysIn(folder: string): string[] {
  return filesIn(folder).flatMap((name) => {
    let bytes: Buffer;
    try {
      bytes = readFileSync(join(folder, name));
    } catch {
      // One of two that have the same object went meanwhile.
      return [];
    }
    const end = bytes.length - TRAILER_BYTES;
    const { key } = JSON.parse(bytes.toString("latin1", end - bytes.readUInt32LE(end + ABOUT_AT), end)) as { key: string };
    return [key];
  });
}

/** @param remembersBytes what the owner's memory brings back by itself; with 0 only its files do. */
export async function loseLogs(rounds: number, remembersBytes: number, log: (text: string) => void): Promise<void> {
  await using folder = makeFolder();
  await using master = await startMaster({ flags: ["--enable_offload=true", "--default_kv_lease_ttl=200"] });
  const ssd = { segmentBytes: 16 * MIB, ssdFolder: folder.path, ssdBytes: 512 * MIB, remembersBytes };
  await using owner = await openClient(master, ssd);
  await using reader = await openClient(master, { timeoutMs: 30_000 });
  for (let round = 0; round < rounds; round++) {
    const at = 1 + Math.floor(Math.random() * OBJECTS);
    const afterMs = Math.random() < 0.5 ? 0 : Math.random() * 120;
    log(`round ${round}: killed ${afterMs.toFixed(0)} ms after ${at} files`);
    const stored = new Set<string>();
    const [first, ...others] = Array.from({ length: OBJECTS }, (_, index) => `block-${round}-${index}`);
    const put = (key = "") => reader.put(key, bytesOf(key, MIB)).then(() => true as const);
    await until("the owner's memory takes objects", () => put(first).catch(() => undefined));
    // One that the kill refuses was never stored.
    const puts = others.map((key) => put(key).catch(() => undefined));
    await until(`${at} are on disk`, () => (filesIn(folder.path).length >= at ? true : undefined), 1);
    if (afterMs > 0) await sleep(afterMs);
    for (const key of keysIn(folder.path)) stored.add(key);
    await master.kill();
    rmSync(join(master.home, "store"), { recursive: true, force: true });
    await master.start();
    await Promise.all(puts);
    for (const key of stored) {
      const bytes = await until(`${key} is there after the loss`, () => reader.get(key).catch(() => undefined));
      assert.ok(bytes.equals(bytesOf(key, MIB)), key);
    }
    // What was on its way to the disk when the master died arrives as well, or goes.
    await until("each is there once", () => (owner.disk?.files === new Set(keysIn(folder.path)).size ? true : undefined));
    // The next round's objects evict none of these: one that is evicted before its file is announced is gone.
    for (const key of [first ?? "", ...others]) await reader.remove(key, true).catch(() => undefined);
    await until("none is left", () => (filesIn(folder.path).length === 0 ? true : undefined));
  }
}
