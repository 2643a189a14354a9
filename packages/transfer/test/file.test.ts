// File segments: the files of a record read and written as one range of offsets.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileRecord, printRecord } from "@svc/contract/metadata.ts";
import { alloc } from "../src/memory.ts";
import { randomBytes, startEngine } from "./parts.ts";
import { startHttp } from "./services.ts";

const LENGTHS = [1_000_003, 3 * 4096 + 1, 700_000];

async function startFiles() {
  const folder = mkdtempSync(join(tmpdir(), "svc-test-"));
  const service = await startHttp();
  const contents = LENGTHS.map((length) => randomBytes(length));
  const paths = contents.map((bytes, index) => {
    const path = join(folder, `${index}.bin`);
    writeFileSync(path, bytes);
    return path;
  });
  const publish = (mounted: string, owner = "elsewhere") =>
    service.put(
      "svc/nvmeof/disk",
      printRecord(
        fileRecord.parse({
          server_name: owner,
          protocol: "nvmeof",
          buffers: paths.map((path, index) => ({
            length: LENGTHS[index],
            file_path: owner === "elsewhere" ? "/not/here" : path,
            local_path_map: { [mounted]: path },
          })),
        }),
      ),
    );
  await publish("reader");
  const engine = await startEngine({ metadata: service.metadata, name: "reader", transports: ["nvmeof"] });
  return {
    engine,
    service,
    paths,
    publish,
    whole: Buffer.concat(contents),
    async [Symbol.asyncDispose]() {
      await engine.freeEngine();
      await service[Symbol.asyncDispose]();
      rmSync(folder, { recursive: true });
    },
  };
}

/** Some lengths and offsets are aligned for O_DIRECT, and some are not. */
const lengths = [1, 511, 4096, 5000, 65_536, 300_000];
const offsets = [0, 1, 4096, 4095, 999_999, 1_000_003, 1_000_003 + 4096, 1_012_292 - 1];

void test("every range of a file segment reads the concatenated bytes of its files, aligned or not", async () => {
  await using files = await startFiles();
  const memory = alloc(1_000_000);
  await files.engine.registerLocalMemory(memory);
  const target = await files.engine.openSegment("nvmeof/disk");
  await files.engine.checkSegmentStatus(target);
  assert.match(files.engine.explainPath(target, 0n, 1), /^file:/);
  for (const length of lengths)
    for (const offset of offsets)
      for (const skew of [0, 7, offset % 4096]) {
        const local = memory.subarray(skew, skew + length);
        local.fill(0);
        files.engine.transferSync("READ", target, [{ local, remote: BigInt(offset) }]);
        assert.ok(files.whole.subarray(offset, offset + length).equals(local), `length ${length} offset ${offset} skew ${skew}`);
      }
});

void test("writes reach their files and nothing else, and no file grows", async () => {
  await using files = await startFiles();
  const memory = alloc(1_000_000);
  memory.set(randomBytes(1_000_000));
  await files.engine.registerLocalMemory(memory);
  const target = await files.engine.openSegment("nvmeof/disk");
  const model = Buffer.from(files.whole);
  for (const length of lengths)
    for (const offset of offsets) {
      const local = memory.subarray(offset % 4096, (offset % 4096) + length);
      await files.engine.transfer("WRITE", target, [{ local, remote: BigInt(offset) }]);
      model.set(local, offset);
    }
  assert.ok(Buffer.concat(files.paths.map((path) => readFileSync(path))).equals(model));
  assert.deepEqual(
    files.paths.map((path) => statSync(path).size),
    LENGTHS,
  );
});

void test("a range beyond the end of a file segment fails and leaves the files unchanged", async () => {
  await using files = await startFiles();
  const memory = alloc(8192);
  await files.engine.registerLocalMemory(memory);
  const target = await files.engine.openSegment("nvmeof/disk");
  const end = BigInt(files.whole.length);
  for (const remote of [end - 100n, end, end + 4096n])
    assert.throws(() => files.engine.transferSync("WRITE", target, [{ local: memory, remote }]), /passes the end of the segment/);
  assert.ok(Buffer.concat(files.paths.map((path) => readFileSync(path))).equals(files.whole));
});

void test("a file that is not mounted here is refused with a message that explains how to mount it", async () => {
  await using files = await startFiles();
  await files.publish("another-machine");
  const memory = alloc(4096);
  await files.engine.registerLocalMemory(memory);
  const target = await files.engine.openSegment("nvmeof/disk");
  assert.throws(() => files.engine.transferSync("READ", target, [{ local: memory, remote: 0n }]), /not mounted on reader.*svc segment mount/);
  // The owner needs no mount, because file_path is its own path.
  await files.publish("another-machine", "reader");
  await files.engine.syncSegmentCache("nvmeof/disk");
  files.engine.transferSync("READ", target, [{ local: memory, remote: 0n }]);
  assert.ok(files.whole.subarray(0, 4096).equals(memory));
});

void test("without the nvmeof transport a file segment is refused", async () => {
  await using files = await startFiles();
  await files.engine.uninstallTransport("nvmeof");
  const memory = alloc(4096);
  await files.engine.registerLocalMemory(memory);
  const target = await files.engine.openSegment("nvmeof/disk");
  assert.throws(() => files.engine.transferSync("READ", target, [{ local: memory, remote: 0n }]), { name: "TRANSPORT_UNAVAILABLE" });
});

void test("a source that is not completely registered is refused for a file segment, and the files are unchanged", async () => {
  await using files = await startFiles();
  const area = randomBytes(16_384);
  const half = area.subarray(0, 8192);
  const start = await files.engine.registerLocalMemory(half);
  const target = await files.engine.openSegment("nvmeof/disk");
  const refused = { name: "MEMORY_NOT_REGISTERED" };
  for (const local of [randomBytes(4096), area, area.subarray(8191, 8193)])
    for (const opcode of ["WRITE", "READ"] as const) {
      const held = Buffer.from(local);
      assert.throws(() => files.engine.transferSync(opcode, target, [{ local, remote: 0n }]), refused);
      await assert.rejects(files.engine.transfer(opcode, target, [{ local, remote: 0n }]), refused);
      assert.ok(held.equals(local), "nothing was read into it");
    }
  await files.engine.unregisterLocalMemory(start);
  assert.throws(() => files.engine.transferSync("WRITE", target, [{ local: half, remote: 0n }]), refused);
  assert.ok(Buffer.concat(files.paths.map((path) => readFileSync(path))).equals(files.whole));
});
