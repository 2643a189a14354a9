// Object storage in a directory: the suite, and what only a directory can show.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, statSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { openDirectoryObjects } from "../src/objects/directory.ts";
import { openObjects } from "../src/objects/open-objects.ts";
import { listingOf, refusalOf } from "../src/objects/s3-answers.ts";
import { credentialsFrom } from "../src/objects/s3-credentials.ts";
import { signed } from "../src/objects/s3-sign.ts";
import { objectsSettings } from "../src/objects/settings.ts";
import { objectsSuite } from "./objects.suite.ts";

const folderOfTest = () => mkdtempSync(join(tmpdir(), "svc-objects-"));

for (const durability of ["process", "disk"] as const) {
  objectsSuite(`a directory, durability ${durability}`, { skip: false }, async () => {
    const folder = folderOfTest();
    const objects = await openDirectoryObjects(join(folder, "made/anew"), durability);
    return { objects, [Symbol.asyncDispose]: async () => rmSync(folder, { recursive: true }) };
  });
}

void test("an object that a killed writer left incomplete is not listed, and is removed an hour later", async () => {
  const folder = folderOfTest();
  mkdirSync(join(folder, ".part"));
  writeFileSync(join(folder, ".part/old"), "half");
  writeFileSync(join(folder, ".part/new"), "half");
  utimesSync(join(folder, ".part/old"), Date.now() / 1000 - 4000, Date.now() / 1000 - 4000);
  const objects = await openDirectoryObjects(folder, "process");
  assert.deepEqual(readdirSync(join(folder, ".part")), ["new"]);
  for await (const { key } of objects.list("")) assert.fail(key);
  rmSync(folder, { recursive: true });
});

void test("a directory that is no longer mounted reports that, and does not report objects as missing", async () => {
  const folder = folderOfTest();
  const directory = join(folder, "mounted");
  const objects = await openDirectoryObjects(directory, "process");
  await objects.put("a/b", Buffer.from("x"));
  renameSync(directory, join(folder, "away"));
  mkdirSync(directory);
  const away = { name: "OBJECTS_UNAVAILABLE", message: /is its file system mounted\?/ };
  for (const call of [() => objects.get("a/b", 10), () => objects.head("a/b"), () => objects.put("a/c", Buffer.from("x")), () => objects.list("").next()])
    await assert.rejects(call() as Promise<unknown>, away);
  rmSync(directory, { recursive: true });
  renameSync(join(folder, "away"), directory);
  assert.equal(String(await objects.get("a/b", 10)), "x");
  rmSync(folder, { recursive: true });
});

void test("only the owner can read a directory's objects", async () => {
  const folder = folderOfTest();
  const objects = await openDirectoryObjects(folder, "process");
  await objects.put("a/b", Buffer.from("x"));
  assert.deepEqual([statSync(join(folder, "a")).mode & 0o777, statSync(join(folder, "a/b")).mode & 0o777], [0o700, 0o600]);
  symlinkSync("/etc", join(folder, "etc"));
  for await (const { key } of objects.list("etc")) assert.fail(`a link was followed: ${key}`);
  rmSync(folder, { recursive: true });
});

void test("a request is signed according to AWS Signature Version 4", () => {
  // The example of the signature's specification: GET Object with a range.
  const request = {
    method: "GET",
    host: "examplebucket.s3.amazonaws.com",
    path: "/test.txt",
    query: {},
    headers: { range: "bytes=0-9" },
    bodySHA256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
  };
  const credentials = { accessKeyID: "AKIAIOSFODNN7EXAMPLE", secretAccessKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", sessionToken: undefined };
  const { authorization } = signed(request, credentials, "us-east-1", new Date("2013-05-24T00:00:00.000Z"));
  assert.match(authorization ?? "", /Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41$/);
});

void test("credentials come from the environment or a file, and no message contains them", () => {
  const folder = folderOfTest();
  const file = join(folder, "credentials");
  const read = (text: string) => {
    writeFileSync(file, text);
    return credentialsFrom(file, {})();
  };
  assert.throws(() => credentialsFrom("", {}), { name: "SETTING_INVALID", message: /AWS_ACCESS_KEY_ID/ });
  assert.throws(() => credentialsFrom(join(folder, "none"), {})(), { name: "SETTING_INVALID", message: /is not there/ });
  assert.throws(
    () => read("[default]\naws_secret_access_key = hidden-word\n"),
    (error: Error) => /aws_access_key_id/.test(error.message) && !error.message.includes("hidden-word"),
  );
  assert.deepEqual(read("[default]\naws_access_key_id = ID\naws_secret_access_key=a/b+c\n"), {
    accessKeyID: "ID",
    secretAccessKey: "a/b+c",
    sessionToken: undefined,
  });
  rmSync(folder, { recursive: true });
});

void test("an S3 listing is read with XML-escaped keys, and says whether more follow", () => {
  const xml = `<?xml version="1.0"?><ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>a&amp;b=</NextContinuationToken>
    <Contents><Key>p%2Fq+r</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified><Size>7</Size></Contents></ListBucketResult>`;
  assert.deepEqual(listingOf(xml), { objects: [{ key: "p/q r", sizeBytes: 7, modifiedAtMs: Date.parse("2026-01-02T03:04:05Z") }], next: "a&b=" });
  assert.deepEqual(refusalOf("<Error><Code>AccessDenied</Code><Message>no &lt;way&gt;</Message></Error>"), { code: "AccessDenied", message: "no <way>" });
  assert.deepEqual(refusalOf("not xml"), { code: "", message: "" });
});

void test("an invalid setting of object storage is refused with its expected form", async () => {
  for (const url of ["http://host/bucket", "s3://", "file://host/x", "/srv/objects"])
    assert.equal(objectsSettings.shape.url.safeParse(url).success, false, url);
  const settings = { url: "s3://bucket", endpoint: "", region: "us-east-1", path_style: true, credentials_file: "", concurrency: 4 };
  const rest = { bandwidth_mb_per_second: 0, collect_interval_seconds: 0, collect_grace_seconds: 0 };
  await assert.rejects(openObjects({ ...settings, ...rest }, "process", {}), { name: "SETTING_INVALID", message: /objects.credentials_file/ });
});
