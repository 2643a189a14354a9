// Our client and Mooncake's on one master: each reads what the other stored, in the memory of either.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { openClient, startClient } from "./client.ts";
import { MIB, startHolder } from "./holder.ts";
import { startMaster } from "./master.ts";

const needsWheel = needs("python-clients", "python3");

void test("our client and Mooncake's read each other's objects, in the memory of either", needsWheel, async () => {
  await using master = await startMaster();
  await using mooncake = await startHolder({ master: master.rpcPort });
  await using own = await startClient(master, { segmentBytes: 64 * MIB });
  await using client = await openClient(master);
  const mooncakeName = await mooncake.name();
  for (const holder of [mooncakeName, own.name]) {
    assert.equal(await client.put(`ours in ${holder}`, Buffer.from("from ours"), { preferredSegments: [holder] }), true);
    assert.equal(await mooncake.get(`ours in ${holder}`), "from ours");
    assert.equal(await mooncake.put(`theirs in ${holder}`, "from theirs", { preferred_segment: holder }), 0);
    assert.equal((await client.get(`theirs in ${holder}`))?.toString(), "from theirs");
    assert.equal((await client.stat(`theirs in ${holder}`))?.checksum, undefined, "Mooncake's writer gives no checksum");
    assert.equal(client.getSync(`theirs in ${holder}`)?.toString(), "from theirs");
    assert.equal(await mooncake.call("remove", `ours in ${holder}`, true), 0);
    assert.equal(await mooncake.get(`ours in ${holder}`), "");
  }
  const large = randomBytes(3 * MIB);
  await client.put("large", large, { preferredSegments: [mooncakeName] });
  assert.equal(await mooncake.get("large"), large.toString("latin1"));
  // The client with the source executes the task: here Mooncake's, then ours.
  for (const [source, target] of [
    [mooncakeName, own.name],
    [own.name, mooncakeName],
  ] as const) {
    const id = await client.createMoveTask("large", source, target);
    const { status, message } = await until("the move has ended", async () => {
      const state = await client.task(id);
      return state.status === "succeeded" || state.status === "failed" ? state : undefined;
    });
    assert.equal(status, "succeeded", message);
    assert.equal(Buffer.compare((await client.get("large")) as Buffer, large), 0);
  }
});

void test("the checksum that our client gives is XXH3 of the bytes, in one piece or in several", needsWheel, async () => {
  await using master = await startMaster();
  await using client = await openClient(master, { segmentBytes: 16 * MIB });
  const script = "import sys, xxhash; print(xxhash.xxh3_64_intdigest(sys.stdin.buffer.read()))";
  for (const sizeBytes of [1, 200, 4096, 300_003]) {
    const bytes = randomBytes(sizeBytes);
    const half = sizeBytes >> 1;
    await client.put(`whole-${sizeBytes}`, bytes);
    if (half > 0) await client.put(`pieces-${sizeBytes}`, [bytes.subarray(0, half), bytes.subarray(half)]);
    const found = execFileSync("python3", ["-c", script], { input: bytes, env: { ...process.env, PYTHONPATH: process.env["SVC_PYTHON_CLIENTS"] } });
    assert.equal((await client.stat(`whole-${sizeBytes}`))?.checksum, BigInt(found.toString().trim()));
    if (half > 0) assert.equal((await client.stat(`pieces-${sizeBytes}`))?.checksum, BigInt(found.toString().trim()));
  }
});
