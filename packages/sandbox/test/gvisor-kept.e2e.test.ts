// A checkpoint of a gVisor sandbox that was itself restored contains only the pages changed since, and refers to the earlier pages files.
import assert from "node:assert/strict";
import { cpSync, readdirSync, readFileSync, renameSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import type { Checkpoint, RuntimeHandle } from "@svc/sandbox/runtime/runtime.ts";
import { checkPages } from "../src/runtime/gvisor-pages.ts";
import { paused } from "./gvisor-heap.ts";
import { type Fixture, openFixture, run, smallLimits } from "./runtime-fixture.ts";

const MIB = 2 ** 20;
const HEAP_MIB = 48;
const GENERATIONS = 7;
const here = needs("root", "envd", "base", "runsc", "ip");
const limits = { ...smallLimits, memoryMB: 512 };

/** Allocates random bytes; at a signal it changes `/dev/shm/many` MiB of them, from `/dev/shm/from` on, and writes the checksum of all. */
const holder = `cat >/home/holder.py <<'X'
import hashlib, mmap, os, signal, time
MB = 1 << 20
heap = mmap.mmap(-1, ${HEAP_MIB} * MB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
heap[:] = os.urandom(len(heap))
def say():
    open('/dev/shm/sum.new', 'w').write(hashlib.sha256(heap).hexdigest()); os.rename('/dev/shm/sum.new', '/dev/shm/sum')
def change(*_):
    at, many = (int(open('/dev/shm/' + name).read()) for name in ('from', 'many'))
    heap[at * MB:(at + many) * MB] = os.urandom(many * MB); say()
signal.signal(signal.SIGUSR1, change); say(); open('/dev/shm/pid', 'w').write(str(os.getpid()))
while True: time.sleep(1)
X
nohup python3 /home/holder.py >/dev/shm/log 2>&1 & while [ ! -s /dev/shm/pid ]; do kill -0 $! || exit 1; sleep 0.05; done`;

async function started(fixture: Fixture): Promise<RuntimeHandle> {
  const handle = await fixture.start({ limits });
  assert.equal((await run(handle, holder)).exitCode, 0);
  return handle;
}

/** Changes a part of the memory and returns the new checksum of all of it. */
async function changed(handle: RuntimeHandle, from: number, many: number): Promise<string> {
  const ask = `cd /dev/shm; echo ${from} >from; echo ${many} >many; rm -f sum; kill -USR1 $(cat pid); while [ ! -s sum ]; do kill -0 $(cat pid) || break; sleep 0.02; done; cat sum`;
  const { stdout } = await run(handle, ask);
  assert.match(stdout, /^[0-9a-f]{64}$/);
  return stdout;
}

/** Takes a checkpoint like a snapshot of a running sandbox: the pages file is allocated before the sandbox stops. */
async function snapshot(fixture: Fixture, handle: RuntimeHandle): Promise<Checkpoint> {
  const into: Checkpoint = { directory: fixture.folder(), kind: "memory", isBrief: true };
  await fixture.runtime.checkpoint(handle, into);
  return into;
}

const sum = (handle: RuntimeHandle) => changed(handle, 0, 0);
const sizeOf = (checkpoint: Checkpoint, name = "pages.img") => statSync(join(checkpoint.directory, name)).size;
const kept = ({ directory }: Checkpoint) => readdirSync(directory).filter((name) => name.startsWith("pages-"));

void test("a pause after a resume writes the changed pages, and refers to the earlier file", here, async () => {
  await using fixture = await openFixture("gvisor");
  const first = await paused(fixture, await started(fixture));
  assert.deepEqual(kept(first), []);
  assert.ok(sizeOf(first) > HEAP_MIB * MIB);
  const handle = await fixture.start({ from: first, limits });
  const expected = await changed(handle, 5, 2);
  const second = await paused(fixture, handle);
  assert.deepEqual(kept(second), ["pages-000000.img"]);
  assert.equal(statSync(join(second.directory, "pages-000000.img")).ino, statSync(join(first.directory, "pages.img")).ino);
  // The size is two MiB plus the pages that envd and the shell have touched.
  assert.ok(sizeOf(second) < (HEAP_MIB / 2) * MIB, `${sizeOf(second)}`);
  const again = await fixture.start({ from: second, limits });
  assert.equal(await sum(again), expected);
  // Sandboxes that start concurrently from one checkpoint share no changes.
  const others = await Promise.all([second, second].map((from) => fixture.start({ from, limits })));
  const sums = await Promise.all(others.map((other, number) => changed(other, 20 * number, 3)));
  assert.equal(new Set([expected, ...sums]).size, 3);
  assert.equal(await sum(again), expected);
  await refusesWhatIsCut(second);
});

/** The sizes of the pages file and of the metadata that refers to the others are checked, too. */
async function refusesWhatIsCut({ directory, kind }: Checkpoint): Promise<void> {
  const { keptIn } = await checkPages({ directory, kind });
  assert.deepEqual(keptIn, [0]);
  const [pages, metadata] = [join(directory, "pages.img"), join(directory, "pages_meta.img")];
  for (const [path, cut] of [
    [pages, 4096],
    [metadata, 1],
    [metadata, 4096],
  ] as const) {
    const whole = readFileSync(path);
    truncateSync(path, whole.length - cut);
    await assert.rejects(checkPages({ directory, kind }), { name: "CHECKPOINT_FAILED" }, `${path} ${cut}`);
    writeFileSync(path, whole);
  }
}

void test("over generations of changes nothing is lost, the files stay few, and take no more than twice the necessary space", here, async () => {
  await using fixture = await openFixture("gvisor");
  let handle = await started(fixture);
  let expected = await sum(handle);
  let most = 0;
  for (let generation = 0; generation < GENERATIONS; generation++) {
    // A snapshot works as well as a pause: the next generation starts from either.
    const branch = generation % 3 === 1 ? await snapshot(fixture, handle) : undefined;
    const end = await paused(fixture, handle);
    const from = branch ?? end;
    handle = await fixture.start({ from, limits });
    assert.equal(await sum(handle), expected, `generation ${generation}`);
    expected = await changed(handle, (generation * 7) % (HEAP_MIB - 8), 1 + (generation % 8));
    const bytes = kept(from).reduce((total, name) => total + sizeOf(from, name), sizeOf(from));
    assert.ok(kept(from).length <= 7 && bytes < 2.5 * (HEAP_MIB + 16) * MIB, `${kept(from).length} files, ${bytes} bytes`);
    most = Math.max(most, kept(from).length);
  }
  assert.ok(most > 1, `${most}`);
});

void test("a checkpoint starts wherever its files are copied to, but not with a missing, short or additional file", here, async () => {
  await using fixture = await openFixture("gvisor");
  const handle = await fixture.start({ from: await paused(fixture, await started(fixture)), limits });
  const expected = await changed(handle, 0, 1);
  const original = await paused(fixture, handle);
  const copy = (): Checkpoint => {
    const directory = fixture.folder();
    cpSync(original.directory, directory, { recursive: true, preserveTimestamps: true });
    return { directory, kind: "memory" };
  };
  assert.equal(await sum(await fixture.start({ from: copy(), limits })), expected);
  const harms: Record<string, (path: string) => void> = {
    missing: (path) => renameSync(path, path.replace("pages-", "gone-")),
    short: (path) => truncateSync(path, statSync(path).size / 2),
    "one too many": (path) => cpSync(path, path.replace("000000", "000001")),
  };
  for (const [what, harm] of Object.entries(harms)) {
    const from = copy();
    harm(join(from.directory, "pages-000000.img"));
    await assert.rejects(fixture.start({ from, limits }), { name: "SANDBOX_START_FAILED" }, what);
  }
});
