// The files of a gVisor sandbox, in layers next to its checkpoints: they have the same bytes in every generation, and none of another sandbox's.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { keptLayers } from "@svc/sandbox/runtime/gvisor-layers.ts";
import type { Checkpoint, RuntimeHandle } from "@svc/sandbox/runtime/runtime.ts";
import { type Fixture, openFixture, run, smallLimits } from "./runtime-fixture.ts";

const MIB = 2 ** 20;
const here = needs("root", "envd", "base", "runsc", "ip");
const limits = { ...smallLimits, memoryMB: 512, diskSizeMB: 256 };

/** Changes files on the disk and their twins in memory identically, by every kind of operation, then compares them all. */
const twins = `cat >/home/twins.py <<'X'
import mmap, os, random, sys
random.seed(int(sys.argv[1]))
disk, memory = '/opt/twins', '/dev/shm/twins'
for at in (disk, memory): os.makedirs(at, exist_ok=True)
def write(path, offset, data):
    with open(path, 'r+b' if os.path.exists(path) else 'w+b') as f: f.seek(offset); f.write(data)
def append(path, data):
    with open(path, 'ab') as f: f.write(data)
def cut(path, size):
    if os.path.exists(path): os.truncate(path, size)
def through(path, offset, data):
    size = os.path.getsize(path) if os.path.exists(path) else 0
    if offset + len(data) > size: return
    with open(path, 'r+b') as f, mmap.mmap(f.fileno(), 0) as m: m[offset:offset + len(data)] = data
def gone(path):
    if os.path.exists(path): os.unlink(path)
for _ in range(60):
    name, op = 'f%d' % random.randrange(6), random.choice((write, write, append, cut, through, through, gone))
    offset, size = random.randrange(1 << 20), random.randrange(1, random.choice((10, 5000, 300000)))
    arguments = {write: (offset, random.randbytes(size)), append: (random.randbytes(size),), cut: (offset,), through: (offset, random.randbytes(size)), gone: ()}[op]
    for at in (disk, memory): op(at + '/' + name, *arguments)
assert sorted(os.listdir(disk)) == sorted(os.listdir(memory))
for name in os.listdir(disk):
    assert open(disk + '/' + name, 'rb').read() == open(memory + '/' + name, 'rb').read(), name
print('same')
X
`;

/** Maps an unnamed file for writing, and another program's file for reading; at each signal it changes and compares them. */
const holder = `head -c 300000 /dev/urandom >/opt/shown; cat >/home/holder.py <<'X'
import mmap, os, random, signal, time
pages = 64
fd = os.open('/opt/held', os.O_RDWR | os.O_CREAT); os.write(fd, os.urandom(pages * 4096)); os.unlink('/opt/held')
shown = os.open('/opt/shown', os.O_RDONLY)
writable = mmap.mmap(fd, 0); readable = mmap.mmap(shown, 0, prot=mmap.PROT_READ); private = mmap.mmap(shown, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
twin = bytearray(writable[:]); private[5000:5003] = b'own'; rounds = 0
def turn(*_):
    global rounds
    wrong = []
    if writable[:] != twin: wrong.append('mapped')
    if os.pread(fd, len(twin), 0) != bytes(twin): wrong.append('read')
    for _ in range(8):
        at = random.randrange(len(twin)); data = os.urandom(min(9000, len(twin) - at))
        if random.random() < 0.5: writable[at:at + len(data)] = data
        else: os.pwrite(fd, data, at)
        twin[at:at + len(data)] = data
    if writable[:] != twin: wrong.append('changed')
    if readable[:] != os.pread(shown, len(readable), 0): wrong.append('shown')
    if private[5000:5003] != b'own': wrong.append('private')
    rounds += 1
    open('/dev/shm/turned.new', 'w').write(' '.join(wrong) or 'right %d' % rounds); os.rename('/dev/shm/turned.new', '/dev/shm/turned')
signal.signal(signal.SIGUSR1, turn); turn(); open('/dev/shm/holder.pid', 'w').write(str(os.getpid()))
while True: time.sleep(1)
X
nohup python3 /home/holder.py >/dev/shm/holder.log 2>&1 & while [ ! -s /dev/shm/holder.pid ]; do sleep 0.05; done`;

const turned = async (handle: RuntimeHandle) =>
  (
    await run(
      handle,
      `rm -f /dev/shm/turned; head -c 20 /dev/urandom | dd of=/opt/shown bs=1 seek=$(($RANDOM * 9)) conv=notrunc 2>/dev/null
kill -USR1 $(cat /dev/shm/holder.pid); while [ ! -s /dev/shm/turned ]; do sleep 0.02; done; cat /dev/shm/turned /dev/shm/holder.log`,
    )
  ).stdout;

const changed = async (handle: RuntimeHandle, seed: number) => {
  const { stdout, stderr } = await run(handle, `python3 /home/twins.py ${seed}`);
  assert.equal(stdout, "same\n", stderr);
};

async function paused(fixture: Fixture, handle: RuntimeHandle): Promise<Checkpoint> {
  await fixture.runtime.freeze(handle);
  const from = await fixture.checkpoint(handle, "memory");
  await fixture.runtime.destroy(handle);
  return from;
}

/** `snapshots` is an even number; `pauses` exceeds five, so that deleted data that stayed would exceed the bound of five times the files. */
export type LayerRounds = { readonly generations: number; readonly snapshots: number; readonly pauses: number };

export function gvisorLayersSuite({ generations, snapshots, pauses }: LayerRounds): void {
  void test("files are byte for byte what was written, mapped and open ones too, over generations of pauses", here, async () => {
    await using fixture = await openFixture("gvisor");
    let handle = await fixture.start({ limits });
    await run(handle, `${twins}${holder}`);
    const checkpoints: Checkpoint[] = [];
    for (let generation = 0; generation < generations; generation++) {
      await changed(handle, generation);
      assert.match(await turned(handle), /^right \d+$/);
      const from = await paused(fixture, handle);
      checkpoints.push(from);
      handle = await fixture.start({ from, limits });
    }
    await changed(handle, generations);
    assert.match(await turned(handle), /^right \d+$/);
    // The sandboxes that continued from them changed none of them.
    for (const [generation, from] of checkpoints.entries()) {
      const again = await fixture.start({ from, limits });
      await changed(again, 100 + generation);
      assert.match(await turned(again), /^right \d+$/);
      await fixture.runtime.destroy(again);
    }
  });

  void test("a sandbox, its copies and their copies change the same files, and none sees what another wrote", here, async () => {
    await using fixture = await openFixture("gvisor");
    const source = await fixture.start({ limits });
    await run(source, `${twins}${holder}; head -c 20M /dev/urandom >/opt/big; sha256sum </opt/big >/dev/shm/sum; cp /bin/bash /opt/shell`);
    await changed(source, 1);
    const from = await fixture.checkpoint(source, "memory");
    const children = await Promise.all([1, 2].map(() => fixture.start({ from, limits })));
    const [child] = children;
    assert.ok(child !== undefined);
    await changed(child, 2);
    const family = [source, ...children, ...(await Promise.all([fixture.start({ from: await fixture.checkpoint(child, "memory"), limits })]))];
    await Promise.all(
      family.map(async (handle, number) => {
        for (let round = 0; round < 3; round++) {
          await changed(handle, 10 * number + round);
          assert.match(await turned(handle), /^right \d+$/, `${number}`);
        }
        const { stdout } = await run(handle, "sha256sum </opt/big | cmp - /dev/shm/sum && echo same; echo more >>/opt/big; rm /opt/big; ls /opt");
        assert.match(stdout, /^same\n/);
        assert.equal((await run(handle, `/opt/shell -c 'echo ran'; cp /bin/bash /opt/other; rm /opt/shell; /opt/other -c 'echo ran'`)).stdout, "ran\nran\n");
      }),
    );
  });

  void test("each of many snapshots of one running sandbox stays as it was taken", here, async () => {
    await using fixture = await openFixture("gvisor");
    const handle = await fixture.start({ limits });
    await run(handle, `${twins}${holder}`);
    const checkpoints: Checkpoint[] = [];
    for (let round = 0; round < snapshots; round++) {
      await changed(handle, round);
      assert.match(await turned(handle), /^right \d+$/);
      checkpoints.push(await fixture.checkpoint(handle, "memory"));
    }
    for (const from of [checkpoints[0], checkpoints[snapshots / 2], checkpoints.at(-1)]) {
      const child = await fixture.start({ from, limits });
      await changed(child, 50);
      assert.match(await turned(child), /^right \d+$/);
    }
  });

  void test("a checkpoint contains no file data written before the previous one, and the sandboxes started from it share that data", here, async () => {
    await using fixture = await openFixture("gvisor");
    const handle = await fixture.start({ limits });
    await run(handle, "head -c 60M /dev/urandom >/opt/big; truncate -s 1T /opt/sparse; echo end >>/opt/sparse");
    const first = await fixture.checkpoint(handle, "memory");
    await run(handle, "head -c 10M /dev/urandom >/opt/more; rm /opt/sparse");
    const second = await fixture.checkpoint(handle, "memory");
    const inodes = ({ directory }: Checkpoint) =>
      readdirSync(directory)
        .filter((name) => name.startsWith("sealed-"))
        .map((name) => statSync(join(directory, name)).ino);
    assert.ok(statSync(join(second.directory, "pages.img")).size < 40 * MIB);
    assert.equal(inodes(first).length, 1);
    assert.deepEqual(inodes(second).slice(0, 1), inodes(first));
    const child = await fixture.start({ from: second, limits });
    assert.equal((await run(child, "stat -c %s /opt/big /opt/more; ls /opt/sparse 2>&1 | wc -l")).stdout, `${60 * MIB}\n${10 * MIB}\n1\n`);
    const { diskBytes } = await fixture.runtime.usage(child);
    assert.ok(diskBytes >= 70 * MIB && diskBytes < 80 * MIB, `${diskBytes}`);
  });

  void test("however often a sandbox is paused, its layers stay few: small ones are merged and large ones stay", () => {
    const M = MIB;
    assert.equal(keptLayers([]), 0);
    assert.equal(keptLayers([2048 * M, 3 * M]), 1);
    assert.equal(keptLayers([2048 * M, 200 * M]), 2);
    assert.equal(keptLayers([10 * M, 5 * M, 1 * M]), 0);
    assert.equal(keptLayers([2048 * M, 26 * M, 20 * M, 10 * M]), 3);
    assert.equal(keptLayers([2048 * M, 26 * M, 20 * M, 10 * M, 10 * M]), 1);
    let layers: number[] = [2048 * M];
    let joins = false;
    let copied = 0;
    let written = 0;
    for (let pause = 0; pause < 500; pause++) {
      const bytes = (1 + ((pause * 37) % 200)) * M;
      written += bytes;
      if (joins) layers.push((layers.pop() ?? 0) + bytes);
      else layers.push(bytes);
      const kept = keptLayers(layers);
      const joined = layers.slice(kept).reduce((sum, each) => sum + each, 0);
      copied += joined;
      // The next writes go to the file into which the layers were merged.
      joins = joined > 0;
      layers = [...layers.slice(0, kept), ...(joins ? [joined] : [])];
      assert.ok(layers.length <= 9, layers.join());
    }
    assert.ok(copied < 8 * written, `${copied / written}`);
  });

  void test("deleted data does not stay on the disk forever, however often a sandbox is paused", here, async () => {
    await using fixture = await openFixture("gvisor");
    let handle = await fixture.start({ limits });
    let most = 0;
    for (let round = 0; round < pauses; round++) {
      await run(handle, `head -c 60M /dev/urandom >/opt/part; sha256sum /opt/part >/dev/shm/sum; echo ${round} >>/opt/rounds`);
      handle = await fixture.start({ from: await paused(fixture, handle), limits });
      most = Math.max(most, (await fixture.runtime.usage(handle)).diskBytes);
    }
    assert.equal((await run(handle, "wc -l </opt/rounds; sha256sum -c /dev/shm/sum")).stdout, `${pauses}\n/opt/part: OK\n`);
    assert.ok(most < 5 * 60 * MIB, `${most}`);
  });

  void test("a checkpoint of files alone works for a sandbox that runs on layers, too", here, async () => {
    await using fixture = await openFixture("gvisor");
    const handle = await fixture.start({ limits });
    await run(handle, twins);
    await changed(handle, 1);
    const resumed = await fixture.start({ from: await paused(fixture, handle), limits });
    await changed(resumed, 2);
    const sums = "cd /opt/twins && sha256sum *";
    const { stdout } = await run(resumed, sums);
    const fresh = await fixture.start({ from: await fixture.checkpoint(resumed, "filesystem"), limits });
    assert.equal((await run(fresh, sums)).stdout, stdout);
    const layer = fixture.folder();
    await fixture.runtime.exportLayer(resumed, layer);
    const outside = execFileSync("sh", ["-c", `cd "$1/opt/twins" && sha256sum *`, "sh", layer], { encoding: "utf8" });
    assert.equal(outside, stdout);
    // Both sandboxes continue to run after their checkpoints.
    for (const each of [resumed, fresh]) await run(each, "echo more >>/opt/twins/f0; rm -rf /opt/twins /dev/shm/twins");
    await changed(resumed, 3);
    await changed(fresh, 3);
  });
}
