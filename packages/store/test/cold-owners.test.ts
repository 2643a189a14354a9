// The owners of one cold-tier device at the master: which of them serves it, and which loses it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { codes } from "../src/rpc/codes.ts";
import { startMaster } from "./master.ts";

const DEVICE = "00000000-0000-0000-0000-0000000000dd";
const idOf = (at: number) => `00000000-0000-0000-0000-00000000000${at}`;
const done = { ok: true, value: undefined };
const refused = { ok: false, code: codes.ILLEGAL_CLIENT };

void test("a device of the cold tier has one live owner: another one is refused, and a later start of the same one ends the earlier", async () => {
  await using master = await startMaster({ flags: ["--client_ttl=600s", "--store.suspect_after_ms=600000"] });
  const rpc = await master.rpc();
  const join = async (at: number, stableID: string, epoch: bigint) => {
    assert.deepEqual(await rpc.call("ReMountSegment", [], idOf(at)), done);
    assert.deepEqual(await rpc.call("Announce", idOf(at), stableID, epoch), done);
  };
  const disk = { id: DEVICE, label: 0x8000, isOurs: true, isEnabled: true, capacityBytes: 1n << 20n, endpoint: "127.0.0.1:1" };
  const mount = (at: number) => rpc.call("MountDisk", idOf(at), disk);
  const turn = (at: number) => rpc.call("TakeDiskOrders", idOf(at), DEVICE, 1, 1);
  await join(1, "owner", 1n);
  await join(2, "other", 5n);
  assert.deepEqual(await mount(1), done);
  assert.deepEqual(await mount(2), refused);
  assert.equal((await turn(1)).ok, true, "a refusal changes nothing");
  await join(3, "owner", 2n);
  assert.deepEqual(await mount(3), done);
  assert.deepEqual(await turn(1), { ok: false, code: codes.SEGMENT_NOT_FOUND });
  assert.deepEqual(await mount(1), refused, "it cannot have it back");
  assert.equal((await turn(3)).ok, true);
  // After an owner has ended in order, any other may mount the device.
  assert.deepEqual(await rpc.call("UnmountDisk", idOf(3), DEVICE, false), done);
  assert.deepEqual(await mount(2), done);
  rpc.close();
});
