// KV events for NOF replicas: the medium is disk, and a removal is published with the last replica on that medium.
import assert from "node:assert/strict";
import { test } from "node:test";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { until } from "@svc/harness/until.ts";
import type { RpcClient } from "../src/rpc/client.ts";
import { clientID, plain, segmentOf } from "./calls.ts";
import { askReplay, endpointsIn, subscribe } from "./kv-listeners.ts";
import { startMaster } from "./master.ts";
import { nofFlags } from "./nof.ts";

const MIB = 1n << 20n;
const secondID = "00000000-0000-0001-0000-000000000003";
const both = { ...plain, nofReplicas: 1n };
const only = { ...plain, replicas: 0n, nofReplicas: 1n };

const nofSegment = (number: number, sizeBytes: bigint) => {
  const endpoint = `nvmeof/holder-${number}:1/nof-x`;
  return { ...segmentOf(number, sizeBytes), name: `nof/${number}`, base: 4096n, endpoint, protocol: "nvmeof" };
};

async function put(rpc: RpcClient, key: string, config: typeof plain): Promise<void> {
  assert.ok((await rpc.call("PutStart", clientID, key, 8n, config, "")).ok, key);
  assert.ok((await rpc.call("PutEnd", clientID, { key, checksum: 7n }, 4, "")).ok, key);
}

void test("subscribers see NOF replicas under the medium disk, and their removal with the last one, also across kills of the master", async () => {
  const home = makeHome();
  const { live, replay } = endpointsIn(home);
  const flags = nofFlags("enable_kv_events=true", `--kv_events_bind_endpoint=${live}`, "--kv_events_backend_id=pool", `--kv_events_replay_endpoint=${replay}`);
  await using master = await startMaster({ home, flags: [...flags, "--client_ttl=600s", "--store.suspect_after_ms=600000"] });
  using listener = subscribe(live);
  let rpc = await master.rpc();
  const mount = async () => {
    assert.ok((await rpc.call("MountSegment", segmentOf(1, 64n * MIB), clientID)).ok);
    assert.ok((await rpc.call("MountSegment", nofSegment(2, 64n * MIB), clientID)).ok);
    assert.ok((await rpc.call("MountSegment", nofSegment(3, 64n * MIB), secondID)).ok);
  };
  await mount();
  let warm = 0;
  await until("the subscriber hears", async () => {
    await put(rpc, `warm-${warm++}`, plain);
    return listener.batches.length > 0 ? true : undefined;
  });
  const heard = (key: string) =>
    listener
      .events()
      .filter((event) => event.object_key === key)
      .map((event) => `${event.event_type} ${event["medium"]}`);
  const hears = (key: string, wanted: readonly string[]) =>
    until(`${key}: ${wanted}`, () => (heard(key).length >= wanted.length ? true : undefined)).then(() => assert.deepEqual(heard(key), wanted, key));

  await put(rpc, "both", both);
  await hears("both", ["stored cpu", "stored disk"]);
  await put(rpc, "only", only);
  await hears("only", ["stored disk"]);
  await put(rpc, "twice", { ...only, nofReplicas: 2n });
  await hears("twice", ["stored disk"]);
  // Removing one of two replicas publishes nothing; removing the last one does.
  assert.deepEqual(await rpc.call("BatchReplicaClear", ["twice"], clientID, "nof/2"), { ok: true, value: ["twice"] });
  assert.deepEqual(await rpc.call("BatchReplicaClear", ["both"], clientID, "holder-1:1"), { ok: true, value: ["both"] });
  await hears("both", ["stored cpu", "stored disk", "removed cpu"]);
  assert.deepEqual(heard("twice"), ["stored disk"]);
  assert.ok((await rpc.call("Remove", "twice", true, "")).ok);
  await hears("twice", ["stored disk", "removed disk"]);

  const last = listener.batches.at(-1)?.sequence ?? 0;
  await master.kill();
  await master.start();
  rpc.close();
  rpc = await master.rpc();
  await mount();
  await put(rpc, "after", both);
  const batches = await until("what came after the kill can be had", async () => {
    const found = await askReplay(replay, last + 1);
    return found.some(({ events }) => events.some((event) => event.object_key === "after")) ? found : undefined;
  });
  const later = batches.flatMap(({ events }) => events).map((event) => `${event.object_key} ${event.event_type} ${event["medium"]}`);
  assert.deepEqual(later, ["after stored cpu", "after stored disk"], "nothing is said twice after a restart");
  // A whole segment is unmounted: objects without another replica are removed, once.
  assert.ok((await rpc.call("UnmountSegment", nofSegment(2, 64n * MIB).id, clientID)).ok);
  assert.ok((await rpc.call("UnmountSegment", nofSegment(3, 64n * MIB).id, secondID)).ok);
  const all = await until("the removals can be had", async () => {
    const events = (await askReplay(replay, last + 1)).flatMap((batch) => batch.events);
    const gone = events.filter(({ event_type }) => event_type === "removed").map((event) => `${event.object_key} ${event["medium"]}`);
    return gone.length >= 3 ? gone : undefined;
  });
  assert.deepEqual(all.sort(), ["after disk", "both disk", "only disk"]);
  rpc.close();
  removeHome(home);
});
