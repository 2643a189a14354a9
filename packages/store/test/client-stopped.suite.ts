// A client that is stopped for longer than its leases, in the middle of a put.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { openClient, startClient } from "./client.ts";
import { startMaster } from "./master.ts";

const MIB = 1 << 20;
/** Bytes from which the key can be recognized. */
const bytesOf = (key: string, sizeBytes = 4096) => Buffer.alloc(sizeBytes, `${key};`);

/** `momentsMs` are delays after the beginning of a put, with one round for each. */
export function clientStoppedSuite(momentsMs: readonly number[]): void {
  void test("a client that was stopped past its leases overwrites no other object, and its put succeeds in the end", async () => {
    await using master = await startMaster({
      flags: ["--store.suspect_after_ms=2500", "--put_start_discard_timeout_sec=1", "--put_start_release_timeout_sec=2"],
    });
    await using _holder = await startClient(master, { segmentBytes: 4 * MIB });
    await using writer = await startClient(master);
    await using client = await openClient(master);
    for (const [round, afterMs] of momentsMs.entries()) {
      // Its leases are fresh when it is stopped somewhere in this put.
      for (let at = 0; at < 8; at++) await writer.ask("put", `warm-${round}-${at}`, bytesOf("warm", 8192).toString("base64"));
      const put = writer.ask("put", `late-${round}`, bytesOf(`late-${round}`, 8192).toString("base64"));
      await sleep(afterMs);
      await writer.freeze();
      await sleep(4000);
      const others = Array.from({ length: 20 }, (_, at) => `other-${round}-${at}`);
      for (const key of others) assert.equal(await client.put(key, bytesOf(key, 8192)), true);
      writer.thaw();
      assert.equal(await put, true);
      assert.deepEqual(await client.get(`late-${round}`), bytesOf(`late-${round}`, 8192));
      for (const key of others) {
        const found = await client.get(key);
        if (found !== undefined) assert.deepEqual(found, bytesOf(key, 8192));
      }
      await client.removeAll(true);
    }
  });
}
