// Files of a device in a bucket: complete or absent, numbered once, and written by one start of one owner.
import assert from "node:assert/strict";
import { test } from "node:test";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { needs } from "@svc/harness/needs.ts";
import { startObjectRelay } from "@svc/harness/object-relay.ts";
import { startObjectServer } from "@svc/harness/object-server.ts";
import type { Objects } from "@svc/kit/objects/objects.ts";
import { openS3Objects } from "@svc/kit/objects/s3.ts";
import { credentialsFrom } from "@svc/kit/objects/s3-credentials.ts";
import { BucketClaim } from "../src/client/cold/bucket-claim.ts";
import { BucketFiles } from "../src/client/cold/bucket-files.ts";
import { fileName, namesOf, PART_BYTES } from "../src/client/cold/bucket-names.ts";
import { BucketSpool } from "../src/client/cold/bucket-spool.ts";
import { encoded } from "../src/client/cold/device-folder.ts";
import { troubleOf } from "../src/client/disk/object-files.ts";
import { LocalMemory } from "../src/client/memory.ts";
import { checksumOf } from "../src/client/put.ts";
import { openEngine } from "../src/client/session/transfer-engine.ts";

const names = namesOf("", "cold-1");
const labelOf = (epoch: number, stableID = "owner") => ({ deviceID: "cold-1", tenant: "", stableID, epoch });
const BOUNDS = { silenceMs: 300, callMs: 2000, attempts: 2 };
const about = { tenant: "default", key: "k", fingerprint: "", group: "", dataType: 0, hardPin: false };

async function openBucket() {
  await using undo = new AsyncDisposableStack();
  const server = undo.use(await startObjectServer());
  const opened = undo.use(new AsyncDisposableStack());
  const at = { bounds: BOUNDS, region: "eu-test-1", pathStyle: true, concurrency: 8, credentials: credentialsFrom("", server.env) };
  const connect = async (endpoint = server.endpoint): Promise<Objects> =>
    opened.adopt(await openS3Objects({ url: "s3://test", bucket: "test", prefix: "", endpoint, ...at }), (each) => each.close());
  const engine = undo.adopt(await openEngine({ localHostname: "127.0.0.1", metadata: "P2PHANDSHAKE", protocol: "tcp" }), (each) => each.freeEngine());
  const memory = await LocalMemory.open(engine, 2 ** 20);
  const homes: string[] = [];
  const own = undo.move();
  return {
    endpoint: server.endpoint,
    connect,
    async serve(epoch: number, stableID = "owner", objects?: Objects) {
      const home = makeHome();
      homes.push(home);
      const through = objects ?? (await connect());
      const claim = await BucketClaim.take(through, names, labelOf(epoch, stableID));
      const spool = await BucketSpool.open(home, 2 ** 30);
      const files = new BucketFiles({ objects: through, names, claim, spool, memory });
      return { claim, files, spool, listed: await files.list() };
    },
    /** Stores a buffer's bytes as a file; returns its number and checksum. */
    async write(files: BucketFiles, bytes: Buffer, isProven = true) {
      const lent = memory.forReading([bytes]);
      try {
        const words = BigUint64Array.from(lent.parts.flatMap(({ address, sizeBytes }) => [address, 0n, BigInt(sizeBytes)]));
        const file = await files.number();
        const checksum = checksumOf(lent.parts);
        assert.equal(await files.write(file, words, about, isProven ? checksum : undefined), checksum);
        return { file, checksum };
      } finally {
        lent.end(false);
      }
    },
    async [Symbol.asyncDispose]() {
      await own[Symbol.asyncDispose]();
      for (const home of homes) removeHome(home);
    },
  };
}

const keysBelow = async (objects: Objects, prefix: string) => {
  const keys: string[] = [];
  for await (const { key } of objects.list(prefix)) keys.push(key);
  return keys.sort();
};
const large = () => Buffer.from(Array.from({ length: 2 * PART_BYTES + 77 }, (_, at) => at % 251));

void test("a file in a bucket is found again by the next start, whole, of one part or of several", needs("object-server"), async () => {
  await using bucket = await openBucket();
  const one = await bucket.serve(5);
  const small = await bucket.write(one.files, Buffer.from("a small value"));
  const big = await bucket.write(one.files, large());
  const objects = await bucket.connect();
  assert.deepEqual(await keysBelow(objects, names.pending), []);
  await one.files.close();
  const two = await bucket.serve(6);
  assert.deepEqual(two.listed, [small.file, big.file]);
  assert.deepEqual(await two.files.about(small.file), { ...about, file: small.file, sizeBytes: 13, checksum: small.checksum });
  assert.deepEqual(await two.files.about(big.file), { ...about, file: big.file, sizeBytes: 2 * PART_BYTES + 77, checksum: big.checksum });
  for (const { file } of [small, big]) await two.files.verify(file);
  assert.ok((await two.files.number()) > big.file, "no number is given twice");
  await two.files.remove(big.file);
  assert.deepEqual(await keysBelow(objects, names.objects), [`${names.objects}${fileName(small.file, 5)}`]);
  await two.files.close();
});

void test("incomplete files, and those that the master never accepted, are quarantined by the next start and not listed", needs("object-server"), async () => {
  await using bucket = await openBucket();
  const one = await bucket.serve(5);
  const whole = await bucket.write(one.files, Buffer.from("whole"), false);
  await one.files.settle(whole.file);
  const unsettled = await bucket.write(one.files, Buffer.from("anything"), false);
  const objects = await bucket.connect();
  // This is the state after a kill between two parts.
  await objects.put(`${names.pending}${fileName(900, 5)}`, Buffer.alloc(0));
  await objects.put(`${names.objects}${fileName(900, 5)}.1`, Buffer.alloc(PART_BYTES));
  await one.files.close();
  const two = await bucket.serve(6);
  assert.deepEqual(two.listed, [whole.file]);
  const aside = await keysBelow(objects, names.quarantine.pending);
  assert.deepEqual(
    aside.map((key) => key.slice(names.quarantine.pending.length)),
    [fileName(unsettled.file, 5), `${fileName(900, 5)}.1`].sort(),
  );
  assert.deepEqual(await keysBelow(objects, names.pending), []);
  await two.files.close();
});

void test("files with changed bytes or a missing part count as damaged, and are quarantined under their own names", needs("object-server"), async () => {
  await using bucket = await openBucket();
  const { files } = await bucket.serve(5);
  const [flipped, torn, sound] = [
    await bucket.write(files, Buffer.from("some value")),
    await bucket.write(files, large()),
    await bucket.write(files, Buffer.from("sound")),
  ];
  const objects = await bucket.connect();
  const key = `${names.objects}${fileName(flipped.file, 5)}`;
  const bytes = (await objects.get(key, 2 ** 20)) as Buffer;
  bytes.writeUInt8(bytes.readUInt8(3) ^ 1, 3);
  await objects.put(key, bytes);
  await objects.delete(`${names.objects}${fileName(torn.file, 5)}.2`);
  for (const { file } of [flipped, torn]) {
    await assert.rejects(files.verify(file), (error) => troubleOf(error) === "damaged");
    await files.quarantine(file);
    await assert.rejects(files.about(file), (error) => troubleOf(error) === "gone");
  }
  await files.verify(sound.file);
  assert.deepEqual(
    await keysBelow(objects, names.quarantine.final),
    [fileName(flipped.file, 5), fileName(torn.file, 5), `${fileName(torn.file, 5)}.1`].map((name) => `${names.quarantine.final}${name}`).sort(),
  );
  await files.close();
});

void test("a later start of an owner ends the earlier one's writes, which overwrite nothing of the later one", needs("object-server"), async () => {
  await using bucket = await openBucket();
  const early = await bucket.serve(5);
  const first = await bucket.write(early.files, Buffer.from("first"));
  const late = await bucket.serve(6);
  const second = await bucket.write(late.files, Buffer.from("second"));
  assert.notEqual(second.file, first.file);
  await assert.rejects(early.files.look(), { name: "STORE_CONFLICT", message: /stale epoch 5.*owner since epoch 6/ });
  await assert.rejects(bucket.write(early.files, Buffer.from("too late")), /stale epoch 5/);
  await assert.rejects(bucket.serve(4), { name: "STORE_CONFLICT", message: /stale epoch 4/ });
  for (const { file } of [first, second]) await late.files.verify(file);
  await early.files.close();
  await late.files.close();
});

void test(
  "another owner is refused while one lives, and gets the device once that one releases it; another tenant never gets it",
  needs("object-server"),
  async () => {
    await using bucket = await openBucket();
    const one = await bucket.serve(5);
    await assert.rejects(bucket.serve(7, "other"), { name: "STORE_CONFLICT", message: /is served by owner/ });
    await one.files.look();
    await one.files.close();
    const other = await bucket.serve(7, "other");
    assert.equal(other.claim.diskID, one.claim.diskID);
    await other.files.close();
    const objects = await bucket.connect();
    await assert.rejects(BucketClaim.take(objects, names, { ...labelOf(9), tenant: "red" }), { name: "STORE_CONFLICT", message: /all tenants/ });
  },
);

void test("a write that the server did not acknowledge leaves no file, and its names go once the server answers again", needs("object-server"), async () => {
  await using bucket = await openBucket();
  await using relay = await startObjectRelay(bucket.endpoint);
  const { files } = await bucket.serve(5, "owner", await bucket.connect(relay.endpoint));
  const kept = await bucket.write(files, Buffer.from("kept"));
  for (const trouble of ["busy", "down", "hang", "lost"] as const) {
    relay.trouble(trouble);
    await assert.rejects(bucket.write(files, Buffer.from(trouble)), { code: "EIO" });
    assert.notEqual(files.silence, "", trouble);
    relay.trouble("none");
    await files.look();
    assert.deepEqual([files.silence, files.silentMs], ["", 0]);
  }
  await files.close();
  const objects = await bucket.connect();
  assert.deepEqual(await keysBelow(objects, names.objects), [`${names.objects}${fileName(kept.file, 5)}`]);
});

void test("the id of a device may have any characters, and two ids never share names", needs("object-server"), async () => {
  await using bucket = await openBucket();
  const objects = await bucket.connect();
  const ids = ["a b", "a_b", "a~b", ".hidden", "-x", "éü", "x".repeat(100)];
  const all = ids.map((id) => namesOf("some/prefix", encoded(id)));
  assert.equal(new Set(all.map(({ device }) => device)).size, ids.length);
  for (const [at, each] of all.entries()) {
    const claim = await BucketClaim.take(objects, each, { deviceID: ids[at] as string, tenant: "", stableID: "owner", epoch: 5 });
    assert.equal((await keysBelow(objects, each.owners)).length, 1);
    await claim.release();
    assert.deepEqual(await keysBelow(objects, each.owners), []);
  }
  assert.throws(() => namesOf("p".repeat(500), encoded("ü".repeat(100))), { name: "INVALID_REQUEST" });
});
