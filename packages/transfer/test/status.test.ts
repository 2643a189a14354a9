// The status of a batch and those of its requests never contradict each other.
import assert from "node:assert/strict";
import { test } from "node:test";
import { randomBytes, startEngine } from "./parts.ts";

const TASKS = 4;
const ROUNDS = 4000;

void test("a batch whose requests are all COMPLETED is COMPLETED and can be freed, and a COMPLETED batch has no other requests", async () => {
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
