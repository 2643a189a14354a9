// Damaged journals: everything readable is kept, the rest is quarantined and named.
import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { startMetadataServer, type TestServer } from "./server.ts";

const filesOf = (server: TestServer, folder: string) => {
  const path = join(server.home, "metadata", folder);
  return readdirSync(path)
    .sort()
    .map((name) => join(path, name));
};
const metric = async (server: TestServer, name: string) =>
  Number(new RegExp(`^${name} (\\d+)$`, "m").exec(await (await fetch(server.url.replace("/metadata", "/metrics"))).text())?.[1]);
const readValue = async (server: TestServer, key: string) => {
  const response = await server.fetch(key);
  return response.status === 200 ? response.text() : undefined;
};

void test("a damaged record is quarantined under a name and counted, the records before and after it are kept, and the next start finds nothing", async () => {
  await using server = await startMetadataServer();
  for (let i = 0; i < 30; i++) assert.equal((await server.fetch(`k${i}`, { method: "PUT", body: `value ${i} `.repeat(20) })).status, 200);
  await server.kill();
  const [file] = filesOf(server, "records") as [string];
  const bytes = readFileSync(file);
  // Damages one byte of a value, and the header of another record.
  const first = bytes.indexOf("value 7 ");
  bytes[first + 3] = 0x58;
  bytes.fill(0xff, bytes.indexOf("k20") - 30, bytes.indexOf("k20") - 10);
  writeFileSync(file, bytes);
  await server.start();
  for (let i = 0; i < 30; i++) assert.equal(await readValue(server, `k${i}`), i === 7 || i === 20 ? undefined : `value ${i} `.repeat(20), `k${i}`);
  assert.equal(await metric(server, "svc_metadata_damages"), 2);
  const aside = filesOf(server, "damaged");
  assert.equal(aside.length, 2);
  assert.ok(readFileSync(aside[0] as string).includes("valXe 7 "), "the bytes are kept as they were");
  await server.kill();
  await server.start();
  assert.equal(await metric(server, "svc_metadata_damages"), 0);
  assert.equal(await metric(server, "svc_metadata_keys"), 28);
  assert.equal(filesOf(server, "damaged").length, 2);
});

void test("a record cut off at the end, as a kill during a write leaves it, does not count as damage, and writing continues after the last whole record", async () => {
  await using server = await startMetadataServer();
  for (const key of ["a", "b"]) await server.fetch(key, { method: "PUT", body: "x".repeat(100) });
  await server.kill();
  const [file] = filesOf(server, "records") as [string];
  truncateSync(file, statSync(file).size - 50);
  await server.start();
  assert.equal(await metric(server, "svc_metadata_damages"), 0);
  assert.equal((await server.fetch("b")).status, 404);
  await server.fetch("c", { method: "PUT", body: "3" });
  await server.kill();
  await server.start();
  assert.equal(await readValue(server, "a"), "x".repeat(100));
  assert.equal(await readValue(server, "c"), "3");
});

void test("a value that looks like a record of the journal stays a value, however its surroundings are damaged", async () => {
  await using server = await startMetadataServer();
  await server.fetch("inner", { method: "PUT", body: "0" });
  await server.kill();
  const [file] = filesOf(server, "records") as [string];
  const frame = readFileSync(file);
  frame.write("1", frame.length - 1);
  await server.start();
  await fetch(`${server.url}?key=outer`, { method: "PUT", body: frame });
  await server.kill();
  for (const each of filesOf(server, "records").slice(-1)) {
    const bytes = readFileSync(each);
    bytes.fill(0, 0, 8);
    writeFileSync(each, bytes);
  }
  await server.start();
  assert.notEqual(await readValue(server, "inner"), "1");
});

void test("a file of the journal that cannot be read at all keeps no other from being read", async () => {
  await using server = await startMetadataServer();
  await server.fetch("a", { method: "PUT", body: "1" });
  await server.kill();
  mkdirSync(join(server.home, "metadata", "records", "00000000-0123456789abcdef.log"));
  await server.start();
  assert.equal(await readValue(server, "a"), "1");
  assert.equal(await metric(server, "svc_metadata_damages"), 1);
});

void test("records of a version before 0.1.0 are refused, and stay as they are", async () => {
  await using server = await startMetadataServer();
  await server.kill();
  const file = join(server.home, "metadata", "records.db");
  writeFileSync(file, "records");
  await assert.rejects(server.start(), /ended with 1/);
  assert.equal(readFileSync(file, "utf8"), "records");
  rmSync(file);
  await server.start();
});
