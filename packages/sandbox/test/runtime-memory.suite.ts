// Checkpoints with memory: programs continue where they stopped, in the same sandbox or in copies of it.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import { until } from "@svc/harness/until.ts";
import type { RuntimeName } from "@svc/sandbox/runtime/runtime.ts";
import { openFixture, run, smallLimits } from "./runtime-fixture.ts";
import { groupMemoryBytes } from "./runtime-limits.suite.ts";

type It = (sentence: string, body: () => Promise<void>) => void;

/** Keeps random bytes in memory only and a counter, and prints a checksum of both that no other program could know. */
const keeper = `cat >/opt/keeper.py <<'X'
import hashlib, os, signal, time
held = [os.urandom(1 << 20) for _ in range(20)]
count = 0
open('/tmp/keeper.pid', 'w').write(str(os.getpid()))
while True:
    count += 1
    text = hashlib.sha256(b''.join(held)).hexdigest() + ' ' + str(count)
    open('/tmp/said.new', 'w').write(text); os.rename('/tmp/said.new', '/tmp/said')
    time.sleep(0.02)
X
nohup python3 /opt/keeper.py >/dev/null 2>&1 & while [ ! -s /tmp/said ]; do sleep 0.05; done; cat /tmp/said`;

export function memoryRounds(name: RuntimeName, it: It, rounds: number): void {
  it(`${rounds} rounds of pausing with memory lose no byte of memory and no file, and programs never notice a boot`, async () => {
    await using fixture = await openFixture(name);
    const bootID = randomUUID();
    let handle = await fixture.start({ bootID });
    const [sum, first] = (await run(handle, keeper)).stdout.split(" ");
    const pid = (await run(handle, "cat /tmp/keeper.pid")).stdout;
    let last = Number(first);
    for (let round = 1; round <= rounds; round++) {
      await run(handle, `echo round ${round} >>/home/log; echo ${round} >/dev/shm/r${round}; mkdir /tmp/d${round}`);
      await fixture.runtime.freeze(handle);
      const from = await fixture.checkpoint(handle, "memory");
      await fixture.runtime.destroy(handle);
      handle = await fixture.start({ from, bootID });
      const [again, count] = (await run(handle, "cat /tmp/said")).stdout.split(" ");
      assert.equal(again, sum, `round ${round}`);
      assert.ok(Number(count) >= last, "it continues to count");
      last = Number(count);
      assert.equal((await run(handle, "cat /tmp/keeper.pid /proc/sys/kernel/random/boot_id")).stdout, `${pid}${bootID}\n`);
    }
    assert.equal((await run(handle, "wc -l </home/log; ls /dev/shm | wc -l; ls -d /tmp/d* | wc -l")).stdout, `${rounds}\n${rounds}\n${rounds}\n`);
  });
}

export function memoryTests(name: RuntimeName, it: It): void {
  memoryRounds(name, it, 4);

  it("copies of one checkpoint run concurrently with their own name, boot id and randomness, and the right clock", async () => {
    await using fixture = await openFixture(name);
    const handle = await fixture.start();
    await run(handle, keeper);
    await fixture.runtime.freeze(handle);
    const from = await fixture.checkpoint(handle, "memory");
    await fixture.runtime.thaw(handle);
    const children = await Promise.all(["one", "two", "three"].map((hostname) => fixture.start({ from, hostname, bootID: randomUUID() })));
    const all = [handle, ...children];
    const asked = "hostname; cat /proc/sys/kernel/random/boot_id; head -c 16 /dev/urandom | od -An -tx1; python3 -c 'import os; print(os.getrandom(16).hex())'";
    const answers = await Promise.all(all.map(async (one) => (await run(one, asked)).stdout.split("\n").slice(0, 4)));
    for (const place of [0, 1, 2, 3]) assert.equal(new Set(answers.map((lines) => lines[place])).size, 4, JSON.stringify(answers));
    for (const child of children) {
      const before = Math.floor(Date.now() / 1000) - 1;
      const [wall = "", uptime = ""] = (await run(child, "date +%s; cut -d. -f1 /proc/uptime")).stdout.split("\n");
      assert.ok(Number(wall) >= before && Number(wall) <= Date.now() / 1000 + 1, wall);
      assert.ok(Number(uptime) >= 0);
    }
    const sums = await Promise.all(all.map(async (one) => (await run(one, "cut -d' ' -f1 /tmp/said")).stdout));
    assert.equal(new Set(sums).size, 1, "the memory is the parent's");
    await run(children[0] as (typeof children)[0], "echo mine >/opt/mine; kill $(cat /tmp/keeper.pid)");
    assert.equal((await run(children[1] as (typeof children)[0], "ls /opt; kill -0 $(cat /tmp/keeper.pid) && echo alive")).stdout, "keeper.py\nalive\n");
    assert.equal((await run(handle, "ls /opt; kill -0 $(cat /tmp/keeper.pid) && echo alive")).stdout, "keeper.py\nalive\n");
  });

  it("a restored sandbox has its own limits of memory and disk", async () => {
    await using fixture = await openFixture(name);
    const handle = await fixture.start();
    await run(handle, "dd if=/dev/urandom of=/opt/bytes bs=1M count=30 2>/dev/null");
    const child = await fixture.start({ from: await fixture.checkpoint(handle, "memory") });
    await fixture.runtime.destroy(handle);
    const use = await fixture.runtime.usage(child);
    assert.equal(use.memoryLimitBytes, groupMemoryBytes(name, smallLimits));
    assert.ok(use.memoryBytes > 2 ** 20 && use.diskBytes >= 30 * 2 ** 20 && use.diskBytes <= smallLimits.diskSizeMB * 2 ** 20, JSON.stringify(use));
    const freeMB = smallLimits.diskSizeMB - 30;
    const fits = await run(child, `dd if=/dev/zero of=/fits bs=1M count=${freeMB - 8} && rm /fits`);
    assert.equal(fits.exitCode, 0, fits.stderr);
    const over = await run(child, `dd if=/dev/zero of=/over bs=1M count=${freeMB + 8}; rm /over`);
    assert.match(over.stderr, /No space left on device/);
    const bomb = await run(child, `python3 -c "held = []\nwhile True: held.append(bytearray(16 << 20))"`);
    assert.equal(bomb.exitCode, 137);
    assert.equal(await fixture.runtime.deathReason(child), "oom");
  });

  it("a sandbox whose memory is nearly full can be checkpointed and restored", async () => {
    await using fixture = await openFixture(name);
    const handle = await fixture.start();
    const hold = (smallLimits.memoryMB * 7) / 10;
    await run(
      handle,
      `nohup python3 -c "import os,time; h = [os.urandom(1 << 20) for _ in range(${Math.floor(hold)})]; open('/tmp/full','w').write('x'); time.sleep(1000)" >/dev/null 2>&1 & while [ ! -s /tmp/full ]; do sleep 0.1; done`,
    );
    const from = await fixture.checkpoint(handle, "memory");
    assert.equal((await run(handle, "pgrep -c python3")).stdout, "1\n");
    const child = await fixture.start({ from });
    assert.equal((await run(child, "pgrep -c python3")).stdout, "1\n");
    assert.equal((await fixture.runtime.limitHits(handle)).memoryKills, 0);
    assert.equal((await fixture.runtime.limitHits(child)).memoryKills, 0);
  });

  it("a copy's outside connections are closed, those inside it continue, and the parent keeps all of its own", async () => {
    await using fixture = await openFixture(name);
    const spec = fixture.spec();
    const sockets = new Set<Socket>();
    const server = createServer((socket) => {
      sockets.add(socket);
      socket.on("error", () => {});
      socket.on("data", (data) => socket.write(data));
    });
    server.listen(0, spec.network?.gatewayAddress);
    await once(server, "listening");
    try {
      const { port } = server.address() as { port: number };
      const handle = await fixture.start(spec);
      const program = `import socket, threading, time
def say(name, text):
    open('/tmp/' + name, 'w').write(text)
def outside():
    s = socket.create_connection(('${spec.network?.gatewayAddress}', ${port})); s.send(b'x'); s.recv(1); say('outside', 'open')
    try: d = s.recv(1)
    except OSError as e: d = b''
    say('outside', 'ended' if d == b'' else 'more')
def within():
    l = socket.create_server(('127.0.0.1', 6000)); c = socket.create_connection(('127.0.0.1', 6000)); a, _ = l.accept(); n = 0
    while True:
        n += 1; c.send(b'x'); a.recv(1); say('within', str(n)); time.sleep(0.05)
for work in (outside, within): threading.Thread(target=work).start()`;
      await run(
        handle,
        `cat >/opt/p.py <<'X'\n${program}\nX\nnohup python3 /opt/p.py >/dev/null 2>&1 & while [ ! -s /tmp/outside -o ! -s /tmp/within ]; do sleep 0.05; done`,
      );
      for (let round = 0; round < 2; round++) await fixture.checkpoint(handle, "memory"); // several checkpoints must not harm the parent
      const from = await fixture.checkpoint(handle, "memory");
      const child = await fixture.start({ from });
      await until("the copy's program sees the end", async () => ((await run(child, "cat /tmp/outside")).stdout === "ended" ? true : undefined));
      const counts = async () => Number((await run(child, "cat /tmp/within")).stdout);
      const before = await counts();
      await until("the connection within the copy continues", async () => ((await counts()) > before ? true : undefined));
      for (const socket of sockets) socket.write("more");
      await until("the parent's continues", async () => ((await run(handle, "cat /tmp/outside")).stdout === "more" ? true : undefined));
      assert.equal(sockets.size, 1, "the copy made none of its own");
    } finally {
      for (const socket of sockets) socket.destroy();
      server.close();
    }
  });
}
