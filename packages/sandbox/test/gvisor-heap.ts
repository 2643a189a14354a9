// A program in a gVisor sandbox that keeps memory whose checksum can be queried, and a pause of the sandbox.
import type { Checkpoint, RuntimeHandle } from "@svc/sandbox/runtime/runtime.ts";
import { type Fixture, run } from "./runtime-fixture.ts";

export async function paused(fixture: Fixture, handle: RuntimeHandle): Promise<Checkpoint> {
  await fixture.runtime.freeze(handle);
  const from = await fixture.checkpoint(handle, "memory");
  await fixture.runtime.destroy(handle);
  return from;
}

/** A program that allocates this number of random MiB and writes their checksum at a signal. */
export const holds = (mib: number) =>
  `nohup python3 -c 'import hashlib, os, signal, time
heap = bytearray(os.urandom(${mib} << 20))
def say(*_): open("/dev/shm/sum.new", "w").write(hashlib.sha256(heap).hexdigest()); os.rename("/dev/shm/sum.new", "/dev/shm/sum")
signal.signal(signal.SIGUSR1, say); say(); open("/dev/shm/pid", "w").write(str(os.getpid()))
while True: time.sleep(1)' >/dev/null 2>&1 & while [ ! -s /dev/shm/pid ]; do sleep 0.05; done`;
export const sumOf = async (handle: RuntimeHandle) =>
  (await run(handle, "rm -f /dev/shm/sum; kill -USR1 $(cat /dev/shm/pid); while [ ! -s /dev/shm/sum ]; do sleep 0.02; done; cat /dev/shm/sum")).stdout;
