// A file that its owner serves as a segment: peers that know only its name read and write it, with and without a metadata service.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { alloc } from "../src/memory.ts";
import { MIB, randomBytes, startEngine } from "./parts.ts";
import { startHttp } from "./services.ts";

for (const way of ["a metadata service", "a handshake"])
  void test(`peers read and write a served file through its owner, found by ${way}, and never beyond its end`, async () => {
    const folder = mkdtempSync(join(tmpdir(), "svc-test-"));
    try {
      await using service = await startHttp();
      const transports = ["tcp", "nvmeof"] as const;
      const metadata = way === "a handshake" ? "P2PHANDSHAKE" : service.metadata;
      await using owner = await startEngine({ metadata, name: way === "a handshake" ? "127.0.0.1" : "owner", transports });
      await using engine = await startEngine({ metadata, name: way === "a handshake" ? "127.0.0.1" : "peer", transports });
      const model = Buffer.from(randomBytes(2 * MIB + 77));
      const path = join(folder, "namespace");
      writeFileSync(path, model);
      const segment = await owner.serveFile("nof", path);
      assert.equal(segment, `nvmeof/${owner.getServerName()}/nof`);
      const memory = alloc(3 * MIB);
      await engine.registerLocalMemory(memory);
      await owner.registerLocalMemory(memory);
      for (const peer of [engine, owner]) {
        const target = await peer.openSegment(segment);
        assert.match(peer.explainPath(target, 0n, 1n), peer === owner ? /^file: / : /^tcp: .* of its owner/);
        for (const [offset, length] of [
          [0, 4096],
          [4096, MIB],
          [77, 70_001],
          [2 * MIB, 77],
        ] as const) {
          const local = memory.subarray(0, length);
          local.set(randomBytes(length));
          model.set(local, offset);
          await peer.transfer("WRITE", target, [{ local, remote: BigInt(offset) }]);
          local.fill(0);
          await peer.transfer("READ", target, [{ local, remote: BigInt(offset) }]);
          assert.ok(model.subarray(offset, offset + length).equals(local), `length ${length} offset ${offset}`);
        }
        const local = memory.subarray(0, 100);
        for (const opcode of ["READ", "WRITE"] as const) await assert.rejects(peer.transfer(opcode, target, [{ local, remote: BigInt(model.length - 99) }]));
        assert.ok(readFileSync(path).equals(model), "what was written is there, and no byte more");
      }
      await assert.rejects(engine.openSegment(`${segment}x`));
      await assert.rejects(owner.serveFile("nof", join(folder, "absent")), /absent/);
      await assert.rejects(owner.serveFile("a/b", path), /slash/);
      await assert.rejects(owner.serveFile("folder", folder), /file or block device|directory/);
      owner.stopFolder("nof");
      await assert.rejects(engine.syncSegmentCache(segment));
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
