// The REST service's mounts: real memory, real shared objects, and the rules of each call.
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { plain } from "./calls.ts";
import { startMaster, type TestMaster } from "./master.ts";
import { type Member, startMember } from "./member.ts";
import { startService, type TestService } from "./service.ts";

const MIB = 1024 * 1024;
const writerID = "00000000-0000-0000-0000-0000000000aa";
type Row = { segment_name: string; segment_id: string; base_address: string; size_bytes: number; protocol: string; status: string };

const rows = async (master: TestMaster): Promise<Row[]> => {
  const answer = await fetch(`${master.url}/get_segments_detail`);
  return answer.ok ? ((await answer.json()) as { segments: Row[] }).segments : [];
};
const idsIn = async (master: TestMaster) => (await rows(master)).map((row) => row.segment_id).sort();
const idsOf = (answer: { body: Record<string, unknown> }) => answer.body["segment_ids"] as string[];
const objectName = (word: string) => `svc-test-${process.pid}-${word}`;

async function putSome(master: TestMaster, key: string, preferredSegment = ""): Promise<number> {
  const rpc = await master.rpc();
  const begun = await rpc.call("PutStart", writerID, key, 4096n, { ...plain, preferredSegment }, "");
  const ended = begun.ok ? await rpc.call("PutEnd", writerID, { key, checksum: undefined }, 4, "") : begun;
  rpc.close();
  return ended.ok ? 0 : ended.code;
}

/** Starts a service without memory of its own, so that the master lists only what calls mounted. */
const bare = (master: TestMaster, flags: readonly string[] = []) => startService({ master: master.rpcPort, flags: ["--global_segment_size=0", ...flags] });
async function withObject(member: Member, word: string, size: number): Promise<{ name: string } & AsyncDisposable> {
  const name = objectName(word);
  await member.ask("makeShared", { name, size });
  return {
    name,
    [Symbol.asyncDispose]: () =>
      member.ask("dropShared", { name }).then(
        () => undefined,
        () => undefined,
      ),
  };
}

void test("the creator of a mounted shared memory object reads what peers write to it", async () => {
  await using master = await startMaster();
  await using engine = await startMember({ master: `127.0.0.1:${master.rpcPort}` });
  await using peer = await startMember({ master: `127.0.0.1:${master.rpcPort}` });
  await using object = await withObject(engine, "seen", 2 * MIB);
  await using service = await bare(master);
  const answer = await service.post("/api/mount_shm", { name: `/${object.name}`, size: MIB, offset: 4096 });
  assert.deepEqual([answer.status, Object.keys(answer.body), answer.body["status"], idsOf(answer).length], [200, ["status", "segment_ids"], "success", 1]);
  const [row] = await rows(master);
  assert.deepEqual([row?.segment_id, row?.size_bytes, row?.protocol, row?.status], [idsOf(answer)[0], MIB, "tcp", "MOUNTED"]);
  await peer.ask("write", { segment: row?.segment_name, remote: String(BigInt(row?.base_address ?? 0)), size: 4096, value: 9 });
  assert.deepEqual([...new Set(await engine.ask<number[]>("sharedBytes", { name: object.name, at: 4096, count: 4096 }))], [9]);
  assert.deepEqual(await engine.ask<number[]>("sharedBytes", { name: object.name, at: 4095, count: 1 }), [0], "nothing before the offset");
  const again = await service.post("/api/mount_shm", { name: object.name, size: MIB, offset: 0 });
  assert.equal(again.status, 409, "no byte is offered twice");
  assert.deepEqual((await service.post("/api/unmount_shm", { segment_ids: idsOf(answer)[0] })).body, { status: "success" });
  assert.deepEqual(await idsIn(master), []);
  await assert.rejects(peer.ask("write", { segment: row?.segment_name, remote: String(BigInt(row?.base_address ?? 0)), size: 4096, value: 1 }));
  assert.equal((await service.post("/api/mount_shm", { name: object.name, size: 2 * MIB })).status, 200);
});

void test("allocated memory is a multiple of 16 MiB, one segment over tcp whatever max_mr_size is, and several where a protocol has a limit", async () => {
  await using master = await startMaster();
  await using service = await bare(master, ["--max_mr_size=1mb", "--store_service.registration_limits=shm=8 MB"]);
  const one = await service.post("/api/mount", { size: 20_000_000 });
  assert.deepEqual(one.body, { status: "success", segment_ids: idsOf(one), allocated_size: 33_554_432 });
  assert.equal(idsOf(one).length, 1);
  const split = await service.post("/api/mount", { size: 16 * MIB, protocol: "shm" });
  assert.equal(idsOf(split).length, 16, "the smaller of the limit and max_mr_size");
  assert.deepEqual(await idsIn(master), [...idsOf(one), ...idsOf(split)].sort());
  assert.deepEqual(
    (await rows(master)).filter(({ protocol }) => protocol === "shm").map((row) => row.size_bytes),
    Array.from({ length: 16 }, () => MIB),
  );
  assert.equal((await service.post("/api/unmount", { segment_ids: idsOf(split) })).status, 200);
  assert.deepEqual(await idsIn(master), idsOf(one));
  await using limited = await bare(master, ["--store_service.registration_limits=shm=6MB"]);
  assert.deepEqual(idsOf(await limited.post("/api/mount", { size: 16 * MIB, protocol: "shm" })).length, 3);
  await assert.rejects(bare(master, ["--store_service.registration_limits=tcp=1MB"]), /tcp always uses one segment/);
});

void test("an unmount that names ids of the other kind, or unknown ones, changes nothing", async () => {
  await using master = await startMaster();
  await using maker = await startMember({ master: `127.0.0.1:${master.rpcPort}` });
  await using object = await withObject(maker, "kinds", MIB);
  await using service = await startService({ master: master.rpcPort, flags: ["--global_segment_size=16mb"] });
  const own = await idsIn(master);
  const [shared] = idsOf(await service.post("/api/mount_shm", { name: object.name, size: MIB }));
  const [memory] = idsOf(await service.post("/api/mount", { size: 1 }));
  const all = await idsIn(master);
  const stranger = "00000000-0000-0000-0000-00000000ffff";
  for (const [path, ids, status, failed] of [
    ["/api/unmount", [memory, shared], 400, [shared]],
    ["/api/unmount_shm", [shared, memory], 400, [memory]],
    ["/api/unmount", [memory, ...own], 400, own],
    ["/api/unmount", [memory, stranger], 404, [stranger]],
    ["/api/unmount_shm", stranger, 404, [stranger]],
  ] as const) {
    const answer = await service.post(path, { segment_ids: ids });
    assert.deepEqual([answer.status, answer.body["failed_segment_ids"]], [status, failed], `${path} ${ids}`);
    assert.deepEqual(await idsIn(master), all);
  }
  const hex = (memory as string).replaceAll("-", "");
  const decimal = `${BigInt(`0x${hex.slice(0, 16)}`)}-${BigInt(`0x${hex.slice(16)}`)}`;
  assert.deepEqual((await service.post("/api/unmount", { segment_ids: [decimal] })).body, { status: "success" }, "Mooncake's form of an id");
});

void test("a grace period keeps its deadline across a SIGKILL of the master; the segment is readable and accepts no new objects until then", async () => {
  await using master = await startMaster();
  await using service = await bare(master);
  const [id] = idsOf(await service.post("/api/mount", { size: MIB }));
  assert.equal(await putSome(master, "k"), 0);
  const begun = Date.now();
  assert.deepEqual((await service.post("/api/unmount", { segment_ids: [id], grace_period_seconds: 25 })).body, { status: "success" });
  assert.equal(await putSome(master, "new"), -200);
  await master.kill();
  await master.start();
  await until("the key is served", async () => {
    const rpc = await master.rpc();
    const found = await rpc.call("ExistKey", "k", "");
    rpc.close();
    return found.ok && found.value ? true : undefined;
  });
  assert.deepEqual(
    (await rows(master)).map(({ segment_id, status }) => [segment_id, status]),
    [[id, "GRACEFULLY_UNMOUNTING"]],
  );
  await until("it is unmounted", async () => ((await idsIn(master)).length === 0 ? true : undefined));
  assert.ok(Date.now() - begun >= 25_000, "not before its time");
});

void test("memory is unmounted while peers write to it, the service survives, and the next mount has none of their bytes", async () => {
  await using master = await startMaster();
  await using service = await bare(master);
  await using peer = await startMember({ master: `127.0.0.1:${master.rpcPort}` });
  for (let round = 0; round < 3; round++) {
    const [id] = idsOf(await service.post("/api/mount", { size: 16 * MIB }));
    const [row] = await rows(master);
    assert.equal(row?.segment_id, id);
    const target = { segment: row?.segment_name, remote: String(BigInt(row?.base_address ?? 0)), size: MIB, value: 7 };
    await peer.ask("storm", { name: `storm-${round}`, ...target });
    const storm = async () => (await peer.ask<Record<string, { done: number; failed: number }>>("storms"))[`storm-${round}`];
    await until("it writes", async () => (((await storm())?.done ?? 0) > 20 ? true : undefined));
    assert.deepEqual((await service.post("/api/unmount", { segment_ids: id })).body, { status: "success" });
    await until("it is refused", async () => (((await storm())?.failed ?? 0) > 5 ? true : undefined));
    const mounted = await mappedBytes(service);
    assert.equal(mounted, 0, "freed");
  }
  await peer.ask("calm");
  assert.equal((await service.ask("GET", "/health")).status, 200);
});

async function mappedBytes(service: TestService): Promise<number> {
  const text = await (await fetch(`${service.url}/metrics`)).text();
  return Number(/^svc_store_service_mounted_bytes (\S+)$/m.exec(text)?.[1] ?? -1);
}

void test("a decode service offers its engine's new memory, and then unmounts what it offered before", async () => {
  await using master = await startMaster();
  await using maker = await startMember({ master: `127.0.0.1:${master.rpcPort}` });
  await using first = await withObject(maker, "first", MIB);
  await using second = await withObject(maker, "second", 2 * MIB);
  await using service = await bare(master);
  const ask = (body: object) => service.post("/api/reconfigure", body);
  const one = await ask({ mode: "decode", path: first.name, size: MIB });
  assert.deepEqual([one.status, one.body["mode"], await idsIn(master)], [200, "decode", idsOf(one)]);
  assert.deepEqual(await ask({ mode: "decode", path: `/dev/shm/${first.name}`, size: MIB }), one, "the same again changes nothing");
  const two = await ask({ mode: "decode", path: second.name, size: 2 * MIB });
  assert.deepEqual(await idsIn(master), idsOf(two));
  assert.equal((await service.post("/api/unmount_shm", { segment_ids: idsOf(two) })).status, 400, "another kind");
  assert.deepEqual((await ask({ mode: "decode", path: "svc-test-there-is-none", size: 1 })).status, 400);
  assert.deepEqual(await idsIn(master), idsOf(two), "what could not be mounted took nothing away");
  assert.deepEqual((await ask({ mode: "prefill" })).body, { status: "success", mode: "prefill", segment_ids: [] });
  assert.deepEqual(await idsIn(master), []);
});
