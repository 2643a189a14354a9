// The memory of programs in a gVisor sandbox, mapped from its checkpoint by the sandboxes that start from it: it has the same bytes in every
// generation, and none of another sandbox's.
import assert from "node:assert/strict";
import { rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import type { RuntimeHandle } from "@svc/sandbox/runtime/runtime.ts";
import { holds, paused, sumOf } from "./gvisor-heap.ts";
import { type Fixture, openFixture, run, smallLimits } from "./runtime-fixture.ts";

const MIB = 2 ** 20;
const here = needs("root", "envd", "base", "runsc", "ip");
const limits = { ...smallLimits, memoryMB: 512, diskSizeMB: 256 };

/**
 * Allocates memory of every kind with a copy in a file. At each signal it compares them, changes both by every kind of operation, and compares
 * again; a child process does the same to its copy, and to the shared memory.
 */
const holder = `cat >/home/holder.py <<'X'
import ctypes, mmap, os, random, signal, time
MB = 1 << 20
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p; libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
def filled(m):
    m[:] = os.urandom(len(m)); return m
anonymous = filled(mmap.mmap(-1, 12 * MB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
shared = filled(mmap.mmap(-1, MB, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS))
at = libc.shmat(libc.shmget(0, MB, 0o1600), None, 0)
segment = memoryview((ctypes.c_char * MB).from_address(at)).cast('B'); filled(segment)
open('/opt/source', 'wb').write(os.urandom(MB)); source = os.open('/opt/source', os.O_RDWR)
copied = mmap.mmap(source, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE); filled(copied)
code = filled(mmap.mmap(-1, MB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC))
heap = bytearray(os.urandom(3 * MB))
names = ('anonymous', 'shared', 'segment', 'copied', 'code', 'heap')
twin = lambda name: '/opt/twin-' + name
for name in names: open(twin(name), 'wb').write(bytes(globals()[name]))
memory = os.open('/proc/self/mem', os.O_RDWR)
def put(name, offset, data):
    m = globals()[name]
    if random.random() < 0.3 and name == 'anonymous':
        base = ctypes.addressof(ctypes.c_char.from_buffer(m)); os.pwrite(memory, data, base + offset)
    else: m[offset:offset + len(data)] = data
def wrong():
    return [name for name in names if bytes(globals()[name]) != open(twin(name), 'rb').read()]
def change(which):
    for _ in range(10):
        name = random.choice(which); m = globals()[name]
        size = random.choice((1, 5000, 300000)); offset = random.randrange(len(m) - size); data = os.urandom(size)
        put(name, offset, data)
        with open(twin(name), 'r+b') as f: f.seek(offset); f.write(data)
    page = random.randrange(8 * MB >> 12) << 12
    anonymous.madvise(mmap.MADV_DONTNEED, page, MB)
    with open(twin('anonymous'), 'r+b') as f: f.seek(page); f.write(bytes(MB))
def moved():
    # To another address, with what it holds.
    global anonymous
    had = bytes(anonymous); anonymous.resize(len(had) + MB); anonymous.resize(len(had))
    return [] if bytes(anonymous) == had else ['moved']
def child():
    pid = os.fork()
    if pid == 0:
        bad = wrong()
        for name in ('anonymous', 'heap', 'copied'): globals()[name][0:700000] = bytes(700000)
        shared[0:5] = b'child'; segment[0:5] = b'child'
        os._exit(1 if bad else 0)
    code = os.waitpid(pid, 0)[1]
    for name in ('shared', 'segment'):
        if bytes(globals()[name][0:5]) != b'child': return [name + ' is not']
        with open(twin(name), 'r+b') as f: f.write(b'child')
    return ['child'] if code else []
rounds = 0
def turn(*_):
    global rounds
    random.seed(os.urandom(8))
    bad = wrong(); change(names); bad += wrong() + moved() + child() + wrong(); rounds += 1
    open('/dev/shm/turned.new', 'w').write(' '.join(bad) or 'right %d' % rounds); os.rename('/dev/shm/turned.new', '/dev/shm/turned')
signal.signal(signal.SIGUSR1, turn); turn(); open('/dev/shm/holder.pid', 'w').write(str(os.getpid()))
while True: time.sleep(1)
X
nohup python3 /home/holder.py >/dev/shm/holder.log 2>&1 & while [ ! -s /dev/shm/holder.pid ]; do kill -0 $! || { cat /dev/shm/holder.log >&2; exit 1; }; sleep 0.05; done`;

async function started(fixture: Fixture): Promise<RuntimeHandle> {
  const handle = await fixture.start({ limits });
  const { exitCode, stderr } = await run(handle, holder);
  assert.equal(exitCode, 0, stderr);
  return handle;
}

async function turn(handle: RuntimeHandle): Promise<void> {
  const ask =
    "rm -f /dev/shm/turned; kill -USR1 $(cat /dev/shm/holder.pid) && while [ ! -s /dev/shm/turned ]; do kill -0 $(cat /dev/shm/holder.pid) || break; sleep 0.02; done";
  assert.match((await run(handle, `${ask}; cat /dev/shm/turned /dev/shm/holder.log`)).stdout, /^right \d+$/);
}

void test("memory is byte for byte what was written, over generations of pauses, copies and their copies", here, async () => {
  await using fixture = await openFixture("gvisor");
  const first = await paused(fixture, await started(fixture));
  const second = await fixture.start({ from: first, limits });
  await turn(second);
  // This is a snapshot of a sandbox that runs on mapped pages itself, and continues.
  const branch = await fixture.checkpoint(second, "memory");
  await turn(second);
  const third = await fixture.start({ from: await paused(fixture, second), limits });
  const family = [third, ...(await Promise.all([branch, branch].map((from) => fixture.start({ from, limits }))))];
  for (let round = 0; round < 2; round++) await Promise.all(family.map(turn));
  await Promise.all(family.map((handle) => fixture.runtime.destroy(handle)));
  // The sandboxes that continued from it changed nothing in it.
  const again = await fixture.start({ from: first, limits });
  await turn(again);
});

void test("a sandbox keeps its memory when the checkpoint that it started from is removed", here, async () => {
  await using fixture = await openFixture("gvisor");
  const handle = await fixture.start({ limits });
  await run(handle, holds(40));
  const sum = await sumOf(handle);
  const from = await paused(fixture, handle);
  const again = await fixture.start({ from, limits });
  rmSync(from.directory, { recursive: true });
  assert.equal(await sumOf(again), sum);
  const third = await fixture.start({ from: await paused(fixture, again), limits });
  assert.equal(await sumOf(third), sum);
});

void test("checkpointed pages that a restored sandbox has not used take none of its memory, and programs inside see them all the same", here, async () => {
  await using fixture = await openFixture("gvisor");
  const handle = await fixture.start({ limits });
  await run(handle, holds(100));
  const from = await paused(fixture, handle);
  assert.ok(statSync(join(from.directory, "pages.img")).size > 100 * MIB);
  const child = await fixture.start({ from, limits });
  const { memoryBytes } = await fixture.runtime.usage(child);
  assert.ok(memoryBytes < 70 * MIB, `${memoryBytes}`);
  const { stdout } = await run(
    child,
    `awk '/^(MemTotal|MemFree):/ { kb[$1] = $2 } END { print kb["MemTotal:"] - kb["MemFree:"] }' /proc/meminfo; awk '/VmRSS/ { print $2 }' /proc/$(cat /dev/shm/pid)/status`,
  );
  const [used = 0, resident = 0] = stdout.trim().split("\n").map(Number);
  // /proc/meminfo shows what the host counts, while the program still sees all of its pages.
  assert.ok(used < 70 * 1024 && resident > 100 * 1024, stdout);
});

/** Runs a command until the sandbox dies, since a dying one does not close its connections. */
async function runWhileAlive(fixture: Fixture, handle: RuntimeHandle, command: string): Promise<void> {
  const died = new AbortController();
  const look = setInterval(() => fixture.runtime.isAlive(handle) || died.abort(), 50);
  await run(handle, command, "root", died.signal).catch(() => undefined);
  clearInterval(look);
}

void test("a start maps no more memory than the sandbox may have, so that pauses do not add to its limit", here, async () => {
  await using fixture = await openFixture("gvisor");
  const small = { ...limits, memoryMB: 192 };
  const begin = `python3 -c 'import os, time
heap = os.urandom(110 << 20)
print(os.getpid(), file=open("/dev/shm/held-%d" % os.getpid(), "w"), flush=True)
time.sleep(1000)' >/dev/null 2>&1 & pid=$!; while kill -0 $pid 2>/dev/null && [ ! -s /dev/shm/held-$pid ]; do sleep 0.05; done`;
  const living = "count=0; for held in /dev/shm/held-*; do kill -0 $(cat $held) && count=$((count + 1)); done 2>/dev/null; echo $count";
  let handle = await fixture.start({ limits: small });
  for (let round = 0; round < 5; round++) {
    await runWhileAlive(fixture, handle, begin);
    // At its limit the sandbox may be killed as a whole, or fail to start.
    const from = await paused(fixture, handle).catch(() => undefined);
    const next = from && (await fixture.start({ from, limits: small }).catch(() => undefined));
    if (next === undefined) return;
    handle = next;
  }
  const count = Number((await run(handle, living)).stdout);
  assert.ok(count >= 1 && count * 110 <= 2 * small.memoryMB, `${count} programs of 110 MiB each, where it may have ${small.memoryMB}`);
});
