// Concurrency: eight processes write to one engine over tcp and shared memory, and every byte is checked.
import assert from "node:assert/strict";
import { test } from "node:test";
import { alloc } from "../src/memory.ts";
import { MIB, sha256, startChild, startEngine } from "./parts.ts";

for (const transports of [["tcp"], ["tcp", "shm"]] as const)
  void test(`eight processes write to one engine at once over ${transports.at(-1)}, and every byte is in its place`, async () => {
    await using engine = await startEngine({ transports });
    const share = 4 * MIB;
    const memory = alloc(8 * share);
    const remote = await engine.registerLocalMemory(memory);
    await using stack = new AsyncDisposableStack();
    const writers = await Promise.all(
      Array.from({ length: 8 }, async (_, index) => {
        const writer = stack.use(await startChild({ transports }));
        const address = await writer.ask<string>({ op: "register", length: share });
        const hash = await writer.ask<string>({ op: "fill", address, length: share });
        return { writer, address, hash, at: index * share };
      }),
    );
    const target = engine.getServerName();
    await Promise.all(
      writers.map(({ writer, address, at }, index) =>
        writer.ask({ op: "write", target, address, remote: (remote + BigInt(at)).toString(), length: share, piece: 1000 * (index + 1) + index, rounds: 3 }),
      ),
    );
    for (const { hash, at } of writers) assert.equal(sha256(memory.subarray(at, at + share)), hash);
  });
