// Holders that go silent or cannot be reached: they are not used, and no client's report alone causes that.
import assert from "node:assert/strict";
import { createServer, type Server } from "node:net";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { until } from "@svc/harness/until.ts";
import type { RpcClient } from "../src/rpc/client.ts";
import type { Segment } from "../src/rpc/shapes.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { startMaster } from "./master.ts";

const MIB = 1n << 20n;
const writerID = "00000000-0000-0000-0000-0000000000aa";

async function listening(port = 0): Promise<{ port: number; server: Server }> {
  const server = createServer((socket) => socket.destroy());
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  return { port: (server.address() as { port: number }).port, server };
}

const at = (port: number): Segment => ({ ...segmentOf(1, MIB), name: `127.0.0.1:${port}`, endpoint: `127.0.0.1:${port}` });

async function put(rpc: RpcClient, key: string): Promise<number> {
  const begun = await rpc.call("PutStart", writerID, key, 100n, plain, "");
  if (!begun.ok) return begun.code;
  const ended = await rpc.call("PutEnd", writerID, { key, checksum: undefined }, 4, "");
  return ended.ok ? 0 : ended.code;
}

/** Acts like a writer whose transfer failed. */
async function giveUp(rpc: RpcClient, key: string): Promise<void> {
  await rpc.call("PutStart", writerID, key, 100n, plain, "");
  await rpc.call("PutRevoke", writerID, key, 4, "");
}

void test("a holder is left alone after the master itself cannot reach it, and is used again when it answers", async () => {
  await using master = await startMaster({ flags: ["--client_ttl=600s", "--store.suspect_after_ms=600000"] });
  const rpc = await master.rpc();
  const holder = await listening();
  await rpc.call("MountSegment", at(holder.port), clientID);
  assert.equal(await put(rpc, "k"), 0);
  await sleep(300);
  // A client that reports a working holder changes nothing.
  for (let round = 0; round < 5; round++) {
    await giveUp(rpc, `lie-${round}`);
    await sleep(300);
  }
  assert.deepEqual(await rpc.call("ExistKey", "k", ""), { ok: true, value: true });
  await new Promise((resolve) => holder.server.close(resolve));
  await until("its keys are misses", async () => {
    await giveUp(rpc, "true");
    const found = await rpc.call("ExistKey", "k", "");
    return found.ok && !found.value ? true : undefined;
  });
  assert.equal(await put(rpc, "elsewhere"), -200, "nothing is put there");
  await until("it is logged", () => (/does not answer/.test(master.log()) ? true : undefined));
  const again = await listening(holder.port);
  await until("it is used again", async () => {
    const found = await rpc.call("ExistKey", "k", "");
    return found.ok && found.value ? true : undefined;
  });
  assert.equal(await put(rpc, "there"), 0);
  again.server.close();
  rpc.close();
});

void test("an endpoint that never accepted a connection is not suspected when it refuses one", async () => {
  await using master = await startMaster({ flags: ["--client_ttl=600s", "--store.suspect_after_ms=600000"] });
  const rpc = await master.rpc();
  await rpc.call("MountSegment", at(1), clientID);
  assert.equal(await put(rpc, "k"), 0);
  for (let round = 0; round < 4; round++) {
    await giveUp(rpc, `given-up-${round}`);
    await sleep(300);
  }
  assert.deepEqual(await rpc.call("ExistKey", "k", ""), { ok: true, value: true });
  rpc.close();
});

void test("a client that misses pings is avoided, then used again, then lost with its keys", async () => {
  await using master = await startMaster({ flags: ["--client_ttl=4s", "--store.suspect_after_ms=1000"] });
  const rpc = await master.rpc();
  await rpc.call("MountSegment", segmentOf(1, MIB), clientID);
  assert.equal(await put(rpc, "k"), 0);
  const exists = async () => {
    const found = await rpc.call("ExistKey", "k", "");
    return found.ok && found.value;
  };
  await until("nobody is sent there", async () => ((await exists()) ? undefined : true));
  assert.deepEqual(await rpc.call("Ping", clientID), { ok: true, value: { viewVersion: 0n, status: 1 } });
  assert.equal(await exists(), true);
  await until("it is lost", async () => ((await (await fetch(`${master.url}/get_all_segments`)).text()) === "" ? true : undefined));
  assert.deepEqual(await rpc.call("Ping", clientID), { ok: true, value: { viewVersion: 0n, status: 2 } });
  assert.deepEqual(await rpc.call("GetReplicaList", "k", ""), { ok: false, code: -704 });
  rpc.close();
});

void test("an unmount with a grace period is readable until its end, which a restart of the master does not move", async () => {
  await using master = await startMaster();
  const rpc = await master.rpc();
  const segment = segmentOf(1, MIB);
  await rpc.call("MountSegment", segment, clientID);
  assert.equal(await put(rpc, "k"), 0);
  assert.deepEqual(await rpc.call("GracefulUnmountSegment", segment.id, writerID, 6000n), { ok: false, code: -600 }, "only its client may");
  assert.deepEqual(await rpc.call("GracefulUnmountSegment", segment.id, clientID, 6000n), { ok: true, value: undefined });
  assert.equal(await put(rpc, "l"), -200);
  assert.deepEqual(await rpc.call("ExistKey", "k", ""), { ok: true, value: true });
  assert.deepEqual(await rpc.call("QuerySegmentStatus", segment.name), { ok: true, value: 4 });
  await master.kill();
  await master.start();
  const again = await master.rpc();
  await again.call("ReMountSegment", [segment], clientID);
  await until("it is gone", async () => {
    await again.call("Ping", clientID);
    return (await (await fetch(`${master.url}/get_all_segments`)).text()) === "" ? true : undefined;
  });
  again.close();
  rpc.close();
});
