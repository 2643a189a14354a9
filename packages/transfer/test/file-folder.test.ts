// Folders of files as segments: file N begins at N << 35, and on this host is read directly from the file system.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { alloc } from "../src/memory.ts";
import { MIB, randomBytes, startEngine } from "./parts.ts";
import { startHttp } from "./services.ts";

void test("a folder's files are read by their numbers, never beyond their ends, and only their owner can write them", async () => {
  const folder = mkdtempSync(join(tmpdir(), "svc-test-"));
  try {
    await using service = await startHttp();
    const transports = ["tcp", "nvmeof"] as const;
    await using owner = await startEngine({ metadata: service.metadata, name: "owner", transports });
    await using engine = await startEngine({ metadata: service.metadata, name: "reader", transports });
    const bytes = Buffer.from(randomBytes(MIB + 77));
    writeFileSync(join(folder, "0000002a"), bytes);
    const segment = await owner.serveFolder("0", folder);
    assert.equal(segment, "nvmeof/owner/0");
    const target = await engine.openSegment(segment);
    const start = 0x2an << 35n;
    assert.equal(engine.explainPath(target, start, 1n), `file: ${folder}`);
    const memory = alloc(2 * MIB);
    await engine.registerLocalMemory(memory);
    for (const [offset, length] of [
      [0, bytes.length],
      [0, 4096],
      [4096, MIB - 4096],
      [1, 70_000],
      [MIB + 76, 1],
    ] as const) {
      const local = memory.subarray(0, length);
      local.fill(0);
      await engine.transfer("READ", target, [{ local, remote: start + BigInt(offset) }]);
      assert.ok(bytes.subarray(offset, offset + length).equals(local), `length ${length} offset ${offset}`);
    }
    const local = memory.subarray(0, 100);
    const moved = (opcode: "READ" | "WRITE", remote: bigint) => engine.transfer(opcode, target, [{ local, remote }]);
    await assert.rejects(moved("READ", start + BigInt(bytes.length - 99)), /0000002a.*passes the end/);
    await assert.rejects(moved("READ", 0x2bn << 35n), /0000002b/);
    await assert.rejects(moved("WRITE", start), /written by their owner alone/);
    assert.ok(readFileSync(join(folder, "0000002a")).equals(bytes));
    await assert.rejects(engine.openSegment("nvmeof/owner/1"));
  } finally {
    rmSync(folder, { recursive: true });
  }
});

void test("a folder with a source requests missing files there, only through its owner, and a file that does not arrive fails only its own read", async () => {
  const folder = mkdtempSync(join(tmpdir(), "svc-test-"));
  const asked: number[] = [];
  const bytes = Buffer.from(randomBytes(2 * MIB + 5));
  const source = createServer((socket) =>
    socket.once("data", (request) => {
      const file = Number(request.readBigUInt64LE());
      asked.push(file);
      if (file === 0x2a) writeFileSync(join(folder, "0000002a"), bytes);
      // One file is created, one is refused, and one request gets no answer.
      if (file === 0x2d) socket.destroy();
      else socket.end(file === 0x2a ? "1" : "0");
    }),
  );
  try {
    await new Promise<void>((listening) => source.listen(join(folder, "source"), listening));
    await using service = await startHttp();
    const transports = ["tcp", "nvmeof"] as const;
    await using owner = await startEngine({ metadata: service.metadata, name: "owner", transports });
    await using engine = await startEngine({ metadata: service.metadata, name: "reader", transports });
    const memory = alloc(3 * MIB);
    const segment = await owner.serveFolder("0", folder);
    for (const reader of [engine, owner]) {
      const target = await reader.openSegment(segment);
      assert.match(reader.explainPath(target, 0x2an << 35n, 1n), /^tcp.*filled by its owner/);
      await reader.registerLocalMemory(memory);
      const local = memory.subarray(0, bytes.length).fill(0);
      await reader.transfer("READ", target, [{ local, remote: 0x2an << 35n }]);
      assert.ok(bytes.equals(local));
      for (const file of [0x2bn, 0x2dn]) await assert.rejects(reader.transfer("READ", target, [{ local, remote: file << 35n }]), { name: "TRANSFER_FAILED" });
      await reader.transfer("READ", target, [{ local, remote: 0x2an << 35n }]);
    }
    assert.deepEqual(asked.filter((file) => file === 0x2a).length, 1, "what is there is not asked for");
  } finally {
    source.close();
    rmSync(folder, { recursive: true });
  }
});
