// Tries changes of a server with the disk full from their n-th write on, for each n: acknowledged is kept, refused is not there.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import type { CountedDisk } from "./counted-disk.ts";

/** One kind of change, tried on something new each time. */
type EachChange = {
  readonly name: string;
  /** With room. What it gives is tried once. */
  prepare(): Promise<Attempt>;
};
export type Attempt = {
  /** True where it was acknowledged, false where it was refused as on a full disk; throws for any other answer. */
  act(): Promise<boolean>;
  isThere(): Promise<boolean>;
  /** Right after it was judged, with room: what would be in the way of the next. Without it, it is looked at once more at the end. */
  undo?(): Promise<unknown>;
};
export type EachServer = { kill(signal: "SIGKILL"): Promise<unknown>; start(): Promise<unknown> };

export type EachWriteOptions = {
  readonly disk: CountedDisk;
  readonly server: EachServer;
  /** For which n the server is killed and started on the full disk. */
  readonly restartsAt?: (n: number) => boolean;
  /** The next n; the first without a refusal is the last. */
  readonly next?: (n: number) => number;
};

/** More writes than any change has. */
const MAX_WRITES = 5_000;
/** A server that looks for room now and then may refuse once more before it has seen it. */
const ROOM_SEEN_MS = 60_000;
const LOOK_MS = 500;

/** How many writes of the change met the full disk. */
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

/** All of them, one after the other; `say` hears how many writes of each met the full disk. */
export async function tryEach(say: (line: string) => void, options: EachWriteOptions, changes: Changes): Promise<void> {
  let met = 0;
  for (const [name, prepare] of Object.entries(changes)) {
    const writes = await eachWrite(options, { name, prepare });
    say(`${name}: ${writes} writes met the full disk`);
    met += writes;
  }
  assert.ok(met > 0, "no write met the full disk: they are not counted");
}
