// A client's membership: the master knows what it mounted, whatever happens to either of them.
import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { freeze, thaw } from "@svc/harness/freeze.ts";
import { until } from "@svc/harness/until.ts";
import { plain } from "./calls.ts";
import { startMaster, type TestMaster } from "./master.ts";
import { type Member, type MemberSegment, startMember } from "./member.ts";

const MIB = 1024 * 1024;
const writerID = "00000000-0000-0000-0000-0000000000aa";

const memberOf = (master: TestMaster, setup: object = {}) => startMember({ master: `127.0.0.1:${master.rpcPort}`, ...setup });
const detail = async (master: TestMaster) => {
  const answer = await fetch(`${master.url}/get_segments_detail`);
  return answer.ok
    ? ((await answer.json()) as { segments: { segment_id: string; size_bytes: number; base_address: string; status: string; readable: boolean }[] }).segments
    : [];
};
const mount = (member: Member, size = MIB, options: object = {}) => member.ask<MemberSegment[]>("mountNew", { size, options });

/** Puts a key like any client; its bytes do not matter. */
async function put(master: TestMaster, key: string): Promise<number> {
  const rpc = await master.rpc();
  const begun = await rpc.call("PutStart", writerID, key, 1000n, plain, "");
  const ended = begun.ok ? await rpc.call("PutEnd", writerID, { key, checksum: undefined }, 4, "") : begun;
  rpc.close();
  return ended.ok ? 0 : ended.code;
}
async function exists(master: TestMaster, key: string): Promise<boolean> {
  const rpc = await master.rpc();
  const found = await rpc.call("ExistKey", key, "");
  rpc.close();
  return found.ok && found.value;
}

void test("a client's memory is listed with its size until it leaves, and is freed then", async () => {
  await using master = await startMaster();
  await using member = await memberOf(master);
  const [segment] = await mount(member, 3 * MIB);
  assert.deepEqual(
    (await detail(master)).map(({ segment_id, size_bytes, base_address, status, readable }) => ({ segment_id, size_bytes, base_address, status, readable })),
    [{ segment_id: segment?.id, size_bytes: 3 * MIB, base_address: `0x${BigInt(segment?.base ?? 0).toString(16)}`, status: "MOUNTED", readable: true }],
  );
  const before = (await member.state()).mappedBytes;
  await member.ask("unmount", { id: segment?.id });
  assert.deepEqual(await detail(master), []);
  assert.equal((await member.state()).mappedBytes, before - 3 * MIB);
  await assert.rejects(member.ask("unmount", { id: segment?.id }), /STORE_KEY_NOT_FOUND/);
  await mount(member);
  await member.ask("close");
  assert.deepEqual(await detail(master), []);
});

void test("keys of a client are served again after a SIGKILL of the master", async () => {
  await using master = await startMaster();
  await using member = await memberOf(master);
  const [segment] = await mount(member);
  assert.equal(await put(master, "k"), 0);
  for (let round = 0; round < 3; round++) {
    await master.kill();
    await master.start();
    await until("the key is served", async () => ((await exists(master, "k")) ? true : undefined));
    assert.deepEqual(
      (await detail(master)).map((row) => row.segment_id),
      [segment?.id],
    );
  }
  const { events } = await member.state();
  assert.equal(events[0], "joined");
  assert.ok(events.filter((event) => event === "joined").length >= 4, String(events));
});

void test("a master that forgot everything learns again what its clients have, even if a new mount is the first that it hears", async () => {
  await using master = await startMaster();
  await using member = await memberOf(master);
  const before = [...(await mount(member)), ...(await mount(member))];
  await master.kill();
  rmSync(join(master.home, "store"), { recursive: true });
  await master.start();
  const after = await mount(member);
  await until("all are listed", async () => ((await detail(master)).length === 3 ? true : undefined));
  assert.deepEqual((await detail(master)).map((row) => row.segment_id).sort(), [...before, ...after].map(({ id }) => id).sort());
});

void test("a client continues after a frozen master resumes, and after it was frozen itself for longer than its TTL", async () => {
  await using master = await startMaster({ flags: ["--client_ttl=2s", "--store.suspect_after_ms=1000"] });
  await using member = await memberOf(master, { callMs: 500 });
  const [segment] = await mount(member);
  await freeze(master.pid);
  await until("it is away", async () => ((await member.state()).isJoined ? undefined : true));
  await assert.rejects(mount(member), /TIMED_OUT|SERVER_UNREACHABLE/, "nothing waits for ever");
  assert.equal((await member.state()).segments.filter(({ state }) => state !== "freeing").length, 1, "what could not be mounted is let go");
  thaw(master.pid);
  await until("it is back", async () => ((await member.state()).isJoined ? true : undefined));
  await until("one segment is listed", async () => ((await detail(master)).map((row) => row.segment_id).join() === segment?.id ? true : undefined));
  await member.freeze();
  await until("the master lost it", async () => ((await detail(master)).length === 0 ? true : undefined));
  member.thaw();
  await until("it is known again", async () => ((await detail(master)).map((row) => row.segment_id).join() === segment?.id ? true : undefined));
});

void test("a grace period ends on time, even if the master forgot it, and the memory is freed then", async () => {
  await using master = await startMaster();
  await using member = await memberOf(master);
  const [going] = await mount(member);
  assert.equal(await put(master, "k"), 0);
  const empty = (await member.state()).mappedBytes - MIB;
  const begun = Date.now();
  await member.ask("unmount", { id: going?.id, graceMs: 25_000 });
  assert.equal(await put(master, "refused"), -200);
  assert.equal(await exists(master, "k"), true);
  await master.kill();
  await master.start();
  await until("the key is served", async () => ((await exists(master, "k")) ? true : undefined));
  await master.kill();
  rmSync(join(master.home, "store"), { recursive: true });
  await master.start();
  await until("it is known as leaving", async () => ((await detail(master))[0]?.status === "GRACEFULLY_UNMOUNTING" ? true : undefined));
  await until("it is gone", async () => ((await detail(master)).length === 0 ? true : undefined));
  assert.ok(Date.now() - begun >= 25_000, "not before its time");
  await until("its memory is freed", async () => ((await member.state()).mappedBytes === empty ? true : undefined));
});

void test("memory is freed under a storm of transfers, none of which reaches the next mount", async () => {
  await using master = await startMaster();
  await using member = await memberOf(master);
  await using peer = await memberOf(master);
  const [segment] = await mount(member, 4 * MIB);
  const { name } = await member.state();
  for (const storm of ["a", "b", "c"]) await peer.ask("storm", { name: storm, segment: name, remote: segment?.base, size: MIB, value: 7 });
  const storms = () => peer.ask<Record<string, { done: number; failed: number }>>("storms");
  await until("transfers go on", async () => (Object.values(await storms()).every(({ done }) => done > 20) ? true : undefined));
  await member.ask("unmount", { id: segment?.id });
  await until("it is freed", async () => ((await member.state()).segments.length === 0 ? true : undefined));
  await until("transfers are refused", async () => (Object.values(await storms()).every(({ failed }) => failed > 5) ? true : undefined));
  // The kernel would return the same address again.
  for (let round = 0; round < 5; round++) {
    const [next] = await mount(member, 4 * MIB);
    const [from, to] = [BigInt(next?.base ?? 0), BigInt(next?.base ?? 0) + BigInt(4 * MIB)];
    assert.ok(to <= BigInt(segment?.base ?? 0) || from >= BigInt(segment?.base ?? 0) + BigInt(4 * MIB), "the address is another");
    assert.deepEqual([...new Set(await member.ask<number[]>("bytes", { id: next?.id, count: MIB }))], [0]);
    await member.ask("unmount", { id: next?.id });
  }
  await peer.ask("calm");
});

void test("a client executes the copies that the master assigns, and reports failures with their reason", async () => {
  await using master = await startMaster({ flags: ["--allocation_strategy=random"] });
  for (const [execute, status, message] of [
    ["well", 3, ""],
    ["badly", 2, "the copy's source is unreadable"],
  ] as const) {
    await using holder = await memberOf(master, { execute });
    await mount(holder);
    assert.equal(await put(master, `key-${execute}`), 0);
    await using other = await memberOf(master);
    await mount(other);
    const [source, target] = [(await holder.state()).name, (await other.state()).name];
    const rpc = await master.rpc();
    const created = await rpc.call("CreateMoveTask", `key-${execute}`, "", source, target);
    const id = created.ok ? created.value : assert.fail(String(created.code));
    const ended = await until("it ended", async () => {
      const found = await rpc.call("QueryTask", id);
      return found.ok && found.value.status >= 2 ? found.value : undefined;
    });
    assert.deepEqual([ended.status, ended.message], [status, message]);
    assert.deepEqual(
      (await holder.state()).tasks.map(({ kind, key, source, targets }) => ({ kind, key, source, targets })),
      [{ kind: "move", key: `key-${execute}`, source, targets: [target] }],
    );
    rpc.close();
    await holder.ask("close");
    await other.ask("close");
  }
});

void test("a protocol with a limit of registration is mounted as several segments, and an unknown one is refused", async () => {
  await using master = await startMaster();
  await using member = await memberOf(master);
  const pieces = await mount(member, 5 * MIB, { protocol: "shm", maxRegistrationBytes: 2 * MIB });
  assert.deepEqual(
    pieces.map(({ sizeBytes, protocol }) => [Number(sizeBytes), protocol]),
    [
      [2 * MIB, "shm"],
      [2 * MIB, "shm"],
      [MIB, "shm"],
    ],
  );
  assert.equal((await detail(master)).length, 3);
  const full = (await member.state()).mappedBytes;
  for (const [at, { id }] of pieces.entries()) {
    await member.ask("unmount", { id });
    assert.equal((await member.state()).mappedBytes, at === 2 ? full - 5 * MIB : full, "freed with the last piece");
  }
  await assert.rejects(mount(member, MIB, { protocol: "carrier-pigeon" }), /TRANSPORT_UNAVAILABLE: protocol "carrier-pigeon" is not installed/);
});
