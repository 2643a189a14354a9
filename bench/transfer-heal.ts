// The time until a peer that was killed and restarted under its name is reachable again, for the transfer bench.
import type { TransferEngine } from "../packages/transfer/src/engine.ts";
import { eventually, randomBytes, startChild } from "../packages/transfer/test/parts.ts";

const LENGTH = 4096;

/** Returns the seconds from the new process's registration of memory to the first completed write. */
export async function healOnce(engine: TransferEngine): Promise<number> {
  const source = randomBytes(LENGTH);
  const local = await engine.registerLocalMemory(source);
  const first = await startChild();
  const target = await engine.openSegment(first.segment);
  const write = (remote: bigint) =>
    engine.transfer("WRITE", target, [{ local: source, remote }]).then(
      () => true,
      () => undefined,
    );
  const before = BigInt(await first.ask<string>({ op: "register", length: LENGTH }));
  await eventually(() => write(before), "the first peer is reached");
  await first[Symbol.asyncDispose]();
  // Callers keep trying while the peer is away, so that every cache has recorded its absence.
  let away = true;
  const trying = (async () => {
    for (; away; await new Promise((resolve) => setTimeout(resolve, 5))) await write(before);
  })();
  const second = await startChild({ rpcPort: Number(first.segment.split(":")[1]) });
  const after = BigInt(await second.ask<string>({ op: "register", length: LENGTH }));
  away = false;
  await trying;
  const begun = performance.now();
  await eventually(() => write(after), "the peer is reached again");
  const took = (performance.now() - begun) / 1000;
  await second[Symbol.asyncDispose]();
  engine.closeSegment(target);
  await engine.unregisterLocalMemory(local);
  return took;
}
