// What status calls say of a batch and of its requests: never one against the other.
import assert from "node:assert/strict";
import { test } from "node:test";
import { randomBytes, startEngine } from "./parts.ts";

const TASKS = 4;
const ROUNDS = 4000;

void test("a batch whose requests all say COMPLETED says so too and can be freed, and one that says so has none that does not", async () => {
  await using here = await startEngine();
  await using there = await startEngine();
  const source = randomBytes(64);
  const sink = new Uint8Array(64);
  await here.registerLocalMemory(source);
  const remote = await there.registerLocalMemory(sink);
  const targetID = await here.openSegment(there.getServerName());
  const entries = Array.from({ length: TASKS }, () => ({ opcode: "WRITE" as const, source, targetID, targetOffset: remote }));
  const tasks = Array.from({ length: TASKS }, (_, task) => task);
  for (let round = 0; round < ROUNDS; round++) {
    const batch = here.allocateBatchID(TASKS);
    here.submitTransfer(batch, entries);
    const isDone = () =>
      round % 2 === 0
        ? tasks.every((task) => here.getTransferStatus(batch, task).status === "COMPLETED")
        : here.getBatchTransferStatus(batch).status === "COMPLETED";
    while (!isDone());
    if (round % 2 === 0) assert.deepEqual(here.getBatchTransferStatus(batch), { status: "COMPLETED", transferredBytes: BigInt(TASKS * 64) }, `round ${round}`);
    else for (const task of tasks) assert.equal(here.getTransferStatus(batch, task).status, "COMPLETED", `round ${round}`);
    here.freeBatchID(batch);
  }
});
