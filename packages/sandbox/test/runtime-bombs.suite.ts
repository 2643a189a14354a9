// Programs that exhaust one resource, for every driver with limits: only they are killed or refused.
import assert from "node:assert/strict";
import { UNTIL_BOUND_MS, until } from "@svc/harness/until.ts";
import type { Limits, RuntimeHandle, RuntimeName } from "@svc/sandbox/runtime/runtime.ts";
import { type Fixture, openFixture, type Ran, run } from "./runtime-fixture.ts";

type It = (sentence: string, body: () => Promise<void>) => void;

const limits: Limits = { cpuCount: 2, memoryMB: 384, diskSizeMB: 64, pids: 300 };
/** A bomb that neither ends nor is refused is stopped by the test: the state of the sandbox afterwards is what counts. */
const BOMB_LIMIT_S = 60;

/** Uses Python, since each shape needs only a few lines of it; a refusal raises an exception that ends the program. */
const python = (program: string) => `timeout -s KILL ${BOMB_LIMIT_S} python3 -c '${program}'`;

const full = (open: string, fill: string) => `
import os, socket, itertools
held = []
while True:
  ${open}
  try:
    for i in range(64): ${fill}
  except BlockingIOError: pass
`;

type Shape = {
  readonly what: string;
  readonly command: string;
  /** Says whether a limit of the sandbox stops it, which is then counted. Others may stop at a limit that the kernel has per user or system. */
  readonly isCounted: (name: RuntimeName) => boolean;
};

const always = () => true;
const inGvisor = (name: RuntimeName) => name === "gvisor";

const shapes: readonly Shape[] = [
  {
    what: "a program that forks endlessly",
    command: `i=0; while [ $i -lt ${limits.pids * 4} ]; do sleep 20 >/dev/null 2>&1 & i=$((i+1)); done; echo all`,
    isCounted: always,
  },
  {
    what: "a program that starts threads endlessly",
    command: python("import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(600,), daemon=True).start()"),
    isCounted: always,
  },
  { what: "a program that takes memory at once", command: python(`x = bytearray(${limits.memoryMB * 4} << 20)`), isCounted: always },
  {
    what: "a program that takes memory slowly",
    command: python("import time\nheld = []\nwhile True: held.append(bytearray(4 << 20)); time.sleep(0.01)"),
    isCounted: always,
  },
  {
    what: "a program that fills files in memory",
    command: python('import os\nf = os.memfd_create("held")\nwhile True: os.write(f, b"x" * (1 << 20))'),
    isCounted: always,
  },
  {
    what: "a program that fills pipes",
    command: python(full("r, w = os.pipe(); os.set_blocking(w, False); held.append((r, w))", 'os.write(w, b"x" * 65536)')),
    isCounted: inGvisor,
  },
  {
    what: "a program that fills sockets",
    command: python(full("a, b = socket.socketpair(); a.setblocking(False); held.append((a, b))", 'a.send(b"x" * 65536)')),
    isCounted: inGvisor,
  },
  {
    what: "a program that fills inotify queues",
    command: python(`
import ctypes, os
c = ctypes.CDLL(None, use_errno=True)
os.makedirs("/dev/shm/watched", exist_ok=True)
held = 0
while held < 4000 and c.inotify_add_watch(c.inotify_init1(0), b"/dev/shm/watched", 0xfff) >= 0: held += 1
for at in range(4000): open("/dev/shm/watched/%d" % at, "w").close(); os.unlink("/dev/shm/watched/%d" % at)
`),
    isCounted: inGvisor,
  },
  {
    what: "a program that opens terminals",
    command: python(full("m, s = os.openpty(); os.set_blocking(s, False); held.append((m, s))", 'os.write(s, b"x" * 4096)')),
    isCounted: () => false,
  },
  {
    what: "a program that maps memory and shares it",
    command: python("import mmap\nheld = []\nwhile True:\n  m = mmap.mmap(-1, 32 << 20); held.append(m)\n  for at in range(0, 32 << 20, 4096): m[at] = 1"),
    isCounted: always,
  },
];

async function prepared(fixture: Fixture, given = limits): Promise<RuntimeHandle> {
  const handle = await fixture.start({ limits: given });
  const before = await run(handle, "echo before >/root/before; nohup sleep 10000 >/dev/null 2>&1 & echo $! >/root/sleeper");
  assert.equal(before.exitCode, 0);
  return handle;
}

/** Retries a command until it works, as a user would. */
async function worksOn(fixture: Fixture, handle: RuntimeHandle): Promise<void> {
  const { stdout } = await until("a command works", async () => {
    assert.equal(fixture.runtime.isAlive(handle), true, "the sandbox lives");
    const ran = await run(handle, "read -r line </root/before; read -r pid </root/sleeper; kill -0 $pid && echo $line").catch((): undefined => undefined);
    return ran?.exitCode === 0 ? ran : undefined;
  });
  assert.equal(stdout, "before\n", "its file is there, and its program runs");
}

export function bombTests(name: RuntimeName, it: It): void {
  for (const { what, command, isCounted } of shapes) {
    it(`${what} is killed or refused alone; the sandbox, its files and its other programs survive, and the reason is counted`, async () => {
      await using fixture = await openFixture(name);
      const handle = await prepared(fixture);
      const ended = await run(handle, command).catch((error: Error): Ran => ({ exitCode: -1, stdout: "", stderr: error.message }));
      await worksOn(fixture, handle);
      if (!isCounted(name)) return;
      await until("the limit is counted", async () => {
        const { memoryKills, memoryRefusals, taskRefusals } = await fixture.runtime.limitHits(handle);
        return memoryKills + memoryRefusals + taskRefusals > 0 ? true : undefined;
      }).catch((error: Error) => assert.fail(`${error.message}: ${JSON.stringify(ended).slice(0, 500)}`));
    });
  }

  it("shells that fork endlessly leave envd able to fork, and their end frees everything", async () => {
    await using fixture = await openFixture(name);
    const handle = await prepared(fixture, { ...limits, pids: 4096 });
    const bomb = run(handle, "b() { b | b & }; b >/dev/null 2>&1; sleep 600", "user").catch(() => {});
    await until("a limit takes effect", async () => {
      const { memoryKills, taskRefusals } = await fixture.runtime.limitHits(handle);
      return memoryKills + taskRefusals > 0 ? true : undefined;
    });
    for (let times = 0; times < 5; times++) await worksOn(fixture, handle);
    const gone = async () => {
      await run(handle, "kill -KILL -1", "user").catch(() => {});
      const left = await run(handle, "exec pgrep -u user").catch((): undefined => undefined);
      return left?.exitCode === 1 ? true : undefined;
    };
    // Thousands of processes fork meanwhile, and under runc they compete with every other test of the machine.
    await until("the bomb's processes are gone", gone, 50, 4 * UNTIL_BOUND_MS);
    await bomb;
    await until("the memory is free again", async () => {
      const { stdout } = await run(handle, "exec cat /proc/meminfo").catch(() => ({ stdout: "" }));
      const [total, free] = ["MemTotal", "MemAvailable"].map((field) => Number(new RegExp(`${field}: +(\\d+)`).exec(stdout)?.[1] ?? Number.NaN));
      return (free as number) > (total as number) / 2 ? true : undefined;
    });
    await worksOn(fixture, handle);
  });
}
