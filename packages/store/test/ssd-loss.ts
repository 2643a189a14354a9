// Masters that die with their log at any moment while an owner stores objects
// on its disk: every file that was complete by then is readable afterwards.
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

/** Returns the keys in the files' descriptions. */
function keysIn(folder: string): string[] {
  return filesIn(folder).flatMap((name) => {
    let bytes: Buffer;
    try {
      bytes = readFileSync(join(folder, name));
    } catch {
      // The file was a duplicate of another one and has been deleted meanwhile.
      return [];
    }
    const end = bytes.length - TRAILER_BYTES;
    const { key } = JSON.parse(bytes.toString("latin1", end - bytes.readUInt32LE(end + ABOUT_AT), end)) as { key: string };
    return [key];
  });
}

/** @param remembersBytes what the owner restores from memory; with 0 it restores only its files. */
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
    // A put that the kill refuses was never stored.
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
    // Objects that were being written when the master died are stored as well, or deleted.
    await until("each is there once", () => (owner.disk?.files === new Set(keysIn(folder.path)).size ? true : undefined));
    // The objects are removed so that the next round evicts none: a file that is evicted before it is announced would be lost.
    for (const key of [first ?? "", ...others]) await reader.remove(key, true).catch(() => undefined);
    await until("none is left", () => (filesIn(folder.path).length === 0 ? true : undefined));
  }
}
