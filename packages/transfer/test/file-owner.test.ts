// File segments on hosts that have not mounted them: the owner's engine reads and writes the files.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileRecord, printRecord } from "@svc/contract/metadata.ts";
import { alloc } from "../src/memory.ts";
import { eventually, MIB, randomBytes, startChild, startEngine } from "./parts.ts";
import { startHttp } from "./services.ts";

const LENGTHS = [3 * MIB + 5, 4096, 700_001];
const transports = ["tcp", "nvmeof"] as const;

async function startOwned() {
  const folder = mkdtempSync(join(tmpdir(), "svc-test-"));
  const service = await startHttp();
  const contents = LENGTHS.map((length) => randomBytes(length));
  const paths = contents.map((bytes, index) => {
    const path = join(folder, `${index}.bin`);
    writeFileSync(path, bytes);
    return path;
  });
  const buffers = paths.map((path, index) => ({ length: LENGTHS[index], file_path: path, local_path_map: {} }));
  await service.put("svc/nvmeof/disk", printRecord(fileRecord.parse({ server_name: "owner", protocol: "nvmeof", buffers })));
  return {
    service,
    paths,
    whole: Buffer.concat(contents),
    now: () => Buffer.concat(paths.map((path) => readFileSync(path))),
    engine: (name: string) => startEngine({ metadata: service.metadata, name, transports }),
    async [Symbol.asyncDispose]() {
      await service[Symbol.asyncDispose]();
      rmSync(folder, { recursive: true });
    },
  };
}

void test("a host without the mount reads and writes every range of a file segment through its owner, in every form", async () => {
  await using files = await startOwned();
  await using owner = await files.engine("owner");
  await using engine = await files.engine("far");
  const memory = alloc(files.whole.length);
  await engine.registerLocalMemory(memory);
  const target = await engine.openSegment("nvmeof/disk");
  await engine.checkSegmentStatus(target);
  assert.match(engine.explainPath(target, 0n, 1), /^tcp: .* of its owner owner; not file \(.*not mounted on far/);
  engine.transferSync("READ", target, [{ local: memory, remote: 0n }]);
  assert.ok(files.whole.equals(memory));
  const model = Buffer.from(files.whole);
  for (const length of [1, 4095, 70_000, 2 * MIB + 1])
    for (const offset of [0, 1, 4096, MIB - 1, 3 * MIB, 3 * MIB + 4, model.length - length].filter((one) => one + length <= model.length)) {
      const local = memory.subarray(offset % 512, (offset % 512) + length);
      local.set(randomBytes(length));
      model.set(local, offset);
      await engine.transfer("WRITE", target, [{ local, remote: BigInt(offset) }]);
      local.fill(0);
      engine.transferSync("READ", target, [{ local, remote: BigInt(offset) }]);
      assert.ok(model.subarray(offset, offset + length).equals(local), `length ${length} offset ${offset}`);
    }
  const batch = Array.from({ length: 500 }, (_, i) => ({ local: memory.subarray(i * 3000, i * 3000 + 3000), remote: BigInt(i * 3000) }));
  await engine.transfer("READ", target, batch);
  assert.ok(model.subarray(0, 1_500_000).equals(memory.subarray(0, 1_500_000)));
  assert.ok(files.now().equals(model));
  assert.deepEqual(
    files.paths.map((path) => statSync(path).size),
    LENGTHS,
  );
  assert.match(owner.metrics(), /svc_transfer_served_bytes_total [1-9]/);
});

void test("concurrent requests through one owner get their own bytes, while the owner's memory is served as well", async () => {
  await using files = await startOwned();
  await using owner = await files.engine("owner");
  const sink = new Uint8Array(MIB);
  const remote = await owner.registerLocalMemory(sink);
  await using one = await files.engine("one");
  await using other = await files.engine("other");
  await Promise.all(
    [one, other].map(async (engine, index) => {
      const memory = alloc(MIB);
      const source = randomBytes(MIB / 2);
      await engine.registerLocalMemory(memory);
      await engine.registerLocalMemory(source);
      const [file, ram] = [await engine.openSegment("nvmeof/disk"), await engine.openSegment("owner")];
      for (let round = 0; round < 20; round++) {
        const at = (round * 77_777 + index * 1_000) % (2 * MIB);
        await Promise.all([
          engine.transfer("READ", file, [{ local: memory, remote: BigInt(at) }]),
          engine.transfer("WRITE", ram, [{ local: source, remote: remote + BigInt(index * source.length) }]),
        ]);
        assert.ok(files.whole.subarray(at, at + MIB).equals(memory));
      }
      assert.deepEqual(sink.subarray(index * source.length, (index + 1) * source.length), source);
    }),
  );
});

void test("a range beyond the end is refused with the segment's length, and an owner that is gone or serves no files is named", async () => {
  await using files = await startOwned();
  await using engine = await files.engine("far");
  const memory = alloc(8192);
  await engine.registerLocalMemory(memory);
  const target = await engine.openSegment("nvmeof/disk");
  const read = (remote = 0n) => engine.transferSync("READ", target, [{ local: memory, remote }]);
  assert.throws(() => read(), /not mounted on far; svc segment mount.*owner cannot be asked.*svc\/ram\/owner/);
  await using owner = await startEngine({ metadata: files.service.metadata, name: "owner" });
  await engine.syncSegmentCache("nvmeof/disk");
  assert.throws(() => read(), /not mounted on far.*its owner owner serves no files: it needs the transports nvmeof and tcp/);
  await owner.installTransport("nvmeof");
  await eventually(() => {
    try {
      read();
      return true;
    } catch {
      return undefined;
    }
  }, "the owner's new transport is found without being asked for");
  assert.throws(() => read(BigInt(files.whole.length - 100)), /passes the end of the segment, which has \d+/);
  await owner.uninstallTransport("nvmeof");
  assert.throws(() => read(), /owner/);
});

void test("an owner that is killed and restarted under its name serves its files again", async () => {
  await using files = await startOwned();
  const setup = { metadata: files.service.metadata, name: "owner", transports };
  await using engine = await files.engine("far");
  const memory = alloc(MIB);
  await engine.registerLocalMemory(memory);
  const first = await startChild(setup);
  const target = await engine.openSegment("nvmeof/disk");
  const read = () => engine.transfer("READ", target, [{ local: memory, remote: 4096n }]);
  await read();
  await first[Symbol.asyncDispose]();
  await assert.rejects(read(), { name: "TRANSFER_FAILED" });
  await using second = await startChild(setup);
  assert.equal(second.segment, "owner");
  await eventually(
    () =>
      read().then(
        () => true,
        () => undefined,
      ),
    "the owner serves again",
  );
  assert.ok(files.whole.subarray(4096, 4096 + MIB).equals(memory));
});

const request = (size: bigint, address: bigint, opcode: number, body = Buffer.alloc(0)): Buffer => {
  const header = Buffer.alloc(24);
  header.writeBigUInt64LE(size, 0);
  header.writeBigUInt64LE(address, 8);
  header[16] = opcode;
  return Buffer.concat([header, body]);
};

void test("hostile file requests access no file: unopened, of memory segments, beyond the end, incomplete", async () => {
  await using files = await startOwned();
  await using owner = await files.engine("owner");
  const { tcp_data_port: port } = JSON.parse((await files.service.get("svc/ram/owner")) ?? "") as { tcp_data_port: number };
  const ok = "000000005654434d";
  const refused = "010000005654434d";
  const say = async (bytes: Buffer) => {
    const socket = connect(port, "127.0.0.1");
    const parts: Buffer[] = [];
    socket.on("data", (part) => parts.push(part));
    socket.write(bytes);
    await new Promise((resolve) => socket.once("close", resolve).on("error", () => {}));
    return Buffer.concat(parts).toString("hex");
  };
  const name = Buffer.from("nvmeof/disk");
  const open = request(BigInt(name.length), 0n, 0xb1, name);
  const end = BigInt(files.whole.length);
  assert.equal(await say(request(16n, 0n, 0x90)), refused, "unopened");
  for (const other of ["ram/owner", "owner", "nvmeof/none", "../x", "nvmeof/"]) {
    const bytes = Buffer.from(other);
    assert.equal(await say(request(BigInt(bytes.length), 0n, 0xb1, bytes)), refused, other);
  }
  assert.equal(await say(request(2000n, 0n, 0xb1, Buffer.alloc(2000, "x"))), refused, "a long name");
  for (const [size, address] of [
    [16n, end - 8n],
    [16n, 0xffff_ffff_ffff_fff8n],
    [0xffff_ffff_ffff_ffffn, 8n],
    [0n, 0n],
  ] as const)
    for (const opcode of [0x90, 0x91]) assert.equal(await say(Buffer.concat([open, request(size, address, opcode)])), ok + refused);
  for (const opcode of [0x10, 0x30, 0xa1, 0xb0]) assert.equal(await say(request(16n, 0n, opcode)), "", `opcode ${opcode}`);
  // A client sends half a body and falls silent: others are served, and the file is unchanged.
  const silent = connect(port, "127.0.0.1");
  silent.on("error", () => {}).write(Buffer.concat([open, request(4096n, 0n, 0x91, Buffer.alloc(100, 1))]));
  await using engine = await files.engine("far");
  const memory = alloc(4096);
  await engine.registerLocalMemory(memory);
  engine.transferSync("READ", await engine.openSegment("nvmeof/disk"), [{ local: memory, remote: 0n }]);
  assert.ok(files.whole.subarray(0, 4096).equals(memory));
  silent.destroy();
  assert.ok(files.now().equals(files.whole));
  assert.equal(owner.getServerName(), "owner");
});
