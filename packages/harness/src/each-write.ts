// Repeats a server's changes with the disk full from their n-th write on, for each n: acknowledged changes are kept, refused ones are
// absent.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import type { CountedDisk } from "./counted-disk.ts";

/** One kind of change, which is tried on a new object each time. */
type EachChange = {
  readonly name: string;
  /** Prepares an attempt while there is space; each attempt is tried once. */
  prepare(): Promise<Attempt>;
};
export type Attempt = {
  /** Returns true if the change was acknowledged, false if it was refused because of a full disk; throws for any other answer. */
  act(): Promise<boolean>;
  isThere(): Promise<boolean>;
  /**
   * Runs right after the attempt was judged, with space, if its result would disturb the next one. Without it, the result is checked once
   * more at the end.
   */
  undo?(): Promise<unknown>;
};
export type EachServer = { kill(signal: "SIGKILL"): Promise<unknown>; start(): Promise<unknown> };

export type EachWriteOptions = {
  readonly disk: CountedDisk;
  readonly server: EachServer;
  /** Returns true if the server is killed and started on the full disk after the n-th write. */
  readonly restartsAt?: (n: number) => boolean;
  /** Returns the next n; the first n without a refusal is the last one. */
  readonly next?: (n: number) => number;
};

/** This exceeds the number of writes of any change. */
const MAX_WRITES = 5_000;
/** A server that checks for space periodically may refuse once more before it notices. */
const ROOM_SEEN_MS = 60_000;
const LOOK_MS = 500;

/** Returns how many writes of the change met the full disk. */
async function eachWrite({ disk, server, restartsAt = () => true, next = (n) => n + 1 }: EachWriteOptions, change: EachChange): Promise<number> {
  const kept: { readonly attempt: Attempt; readonly acknowledged: boolean; readonly where: string }[] = [];
  const restart = async (where: string) => {
    await server.kill("SIGKILL");
    await server.start().catch((error: Error) => assert.fail(`${where}: it does not start: ${error.message}`));
  };
  let met = 0;
  let roomSinceMs = performance.now();
  for (let n = 0, isOver = false; !isOver; ) {
    assert.ok(n < MAX_WRITES, `${change.name} still meets the full disk after ${MAX_WRITES} writes`);
    const where = `${change.name}, the disk full from write ${n + 1} on`;
    const attempt = await change.prepare();
    disk.fillAfter(n, n % 2 === 1);
    const acknowledged = await attempt.act().catch((error: Error) => assert.fail(`${where}: ${error.message}`));
    isOver = disk.refused() === 0;
    if (isOver && !acknowledged) {
      assert.ok(performance.now() - roomSinceMs < ROOM_SEEN_MS, `${change.name} was refused, and no write of it met the full disk`);
      disk.free();
      await attempt.undo?.();
      await sleep(LOOK_MS);
      isOver = false;
      continue;
    }
    if (!isOver) met++;
    assert.equal(await attempt.isThere(), acknowledged, where);
    if (!isOver && restartsAt(n)) {
      disk.fillAfter(0);
      await restart(`${where}, after kill -9 on the full disk`);
      assert.equal(await attempt.isThere(), acknowledged, `${where}, after kill -9 and a start on the full disk`);
    }
    disk.free();
    if (attempt.undo === undefined) kept.push({ attempt, acknowledged, where });
    else await attempt.undo();
    n = next(n);
    roomSinceMs = performance.now();
  }
  await restart(change.name);
  for (const { attempt, acknowledged, where } of kept) assert.equal(await attempt.isThere(), acknowledged, `${where}, after a start with room again`);
  const last = await change.prepare();
  assert.ok((await last.act()) && (await last.isThere()), `${change.name}, with room again`);
  await last.undo?.();
  return met;
}

export type Changes = Readonly<Record<string, () => Promise<Attempt>>>;

/** Runs all changes in order; `say` reports how many writes of each met the full disk. */
export async function tryEach(say: (line: string) => void, options: EachWriteOptions, changes: Changes): Promise<void> {
  let met = 0;
  for (const [name, prepare] of Object.entries(changes)) {
    const writes = await eachWrite(options, { name, prepare });
    say(`${name}: ${writes} writes met the full disk`);
    met += writes;
  }
  assert.ok(met > 0, "no write met the full disk: they are not counted");
}
