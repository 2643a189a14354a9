// The behaviour of object storage, in a directory or on an S3-compatible server.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { describe, test } from "node:test";
import type { ObjectInfo, Objects } from "../src/objects/objects.ts";

export type Opened = AsyncDisposable & { readonly objects: Objects };

const MIB = 2 ** 20;

async function keysOf(listed: AsyncIterable<ObjectInfo>): Promise<string[]> {
  const keys: string[] = [];
  for await (const { key } of listed) keys.push(key);
  return keys.sort();
}

export function objectsSuite(what: string, skip: { skip: string | false }, open: () => Promise<Opened>): void {
  void describe(`objects in ${what}`, skip, () => {
    void test("are complete once they are put, and replace earlier ones", async () => {
      await using opened = await open();
      const { objects } = opened;
      const body = randomBytes(5 * MIB);
      await objects.put("chunks/ab/abc", Buffer.from("first"));
      await objects.put("chunks/ab/abc", body);
      assert.ok((await objects.get("chunks/ab/abc", 5 * MIB))?.equals(body));
      const info = await objects.head("chunks/ab/abc");
      assert.deepEqual([info?.key, info?.sizeBytes], ["chunks/ab/abc", 5 * MIB]);
      assert.ok(Math.abs((info?.modifiedAtMs ?? 0) - Date.now()) < 120_000, "it says when it was put");
      await objects.put("empty", Buffer.alloc(0));
      assert.deepEqual(await objects.get("empty", 10), Buffer.alloc(0));
    });

    void test("are read in part, and no further than their end", async () => {
      await using opened = await open();
      const { objects } = opened;
      await objects.put("digits", Buffer.from("0123456789"));
      const part = async (start: number, end: number) => String(await objects.get("digits", 100, { start, end }));
      assert.deepEqual([await part(0, 1), await part(3, 7), await part(8, 30), await part(4, 4)], ["0", "3456", "89", ""]);
    });

    void test("that are larger than expected are refused before they are buffered", async () => {
      await using opened = await open();
      await opened.objects.put("large", Buffer.alloc(MIB));
      await assert.rejects(opened.objects.get("large", MIB - 1), { name: "PAYLOAD_TOO_LARGE", message: /large has \d+ bytes; the maximum here is 1048575/ });
    });

    void test("that do not exist are undefined, and deleting them succeeds", async () => {
      await using opened = await open();
      const { objects } = opened;
      assert.deepEqual([await objects.get("a/b", 10), await objects.head("a/b"), await objects.head("a")], [undefined, undefined, undefined]);
      await objects.delete("a/b");
      await objects.put("a/b", Buffer.from("x"));
      await objects.delete("a/b");
      assert.equal(await objects.head("a/b"), undefined);
    });

    void test("are listed by prefix, across several pages", async () => {
      await using opened = await open();
      const { objects } = opened;
      const names = Array.from({ length: 1_100 }, (_, at) => `many/${at % 7}/n${at}`);
      for (let at = 0; at < names.length; at += 100) await Promise.all(names.slice(at, at + 100).map((key) => objects.put(key, Buffer.from("x"))));
      await objects.put("manyother/x", Buffer.from("x"));
      assert.deepEqual(await keysOf(objects.list("many/")), [...names].sort());
      assert.deepEqual(await keysOf(objects.list("many/3/n1")), names.filter((name) => name.startsWith("many/3/n1")).sort());
      assert.deepEqual(await keysOf(objects.list("none/")), []);
    });

    void test("have keys of plain characters between slashes only", async () => {
      await using opened = await open();
      for (const key of ["", "/a", "a/", "a//b", "../a", "a/../b", ".part/a", "a b", "a?b", "a\0b", "x".repeat(901)])
        await assert.rejects(opened.objects.put(key, Buffer.from("x")), { message: /cannot be an object's key/ }, key);
    });

    void test("put by many writers at once are each complete", async () => {
      await using opened = await open();
      const { objects } = opened;
      const bodies = Array.from({ length: 8 }, () => randomBytes(MIB));
      await Promise.all(bodies.map((body) => objects.put("one", body)));
      const found = await objects.get("one", MIB);
      assert.ok(bodies.some((body) => found?.equals(body) === true));
    });
  });
}
