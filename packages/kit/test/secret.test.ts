// Secrets: comparison, derivation, reading, and concurrent generation.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import { deriveToken, readOrGenerateSecretFile, readSecretFile, sameSecret } from "../src/secret.ts";

function temporary() {
  const path = mkdtempSync(join(tmpdir(), "svc-secret-"));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}

void test("a secret equals itself and nothing else, and an absent one equals nothing", () => {
  assert.equal(sameSecret("abc", "abc"), true);
  for (const [given, expected] of [
    ["abc", "abd"],
    ["abc", "ab"],
    ["", "a"],
    [undefined, "a"],
    ["a", undefined],
    [undefined, undefined],
  ] as const) {
    assert.equal(sameSecret(given, expected), false, `${given} against ${expected}`);
  }
});

void test("tokens differ by seed, by kind and by sandbox, and stay the same for the same three", () => {
  const tokens = ["one", "two"].flatMap((seed) => (["envd", "traffic"] as const).flatMap((kind) => ["ia", "ib"].map((id) => deriveToken(seed, kind, id))));
  assert.equal(new Set(tokens).size, 8);
  for (const token of tokens) assert.match(token, /^[0-9a-f]{64}$/);
  assert.equal(deriveToken("one", "envd", "ia"), deriveToken("one", "envd", "ia"));
});

void test("a secret file may end in one newline, with or without a carriage return", () => {
  using directory = temporary();
  const path = join(directory.path, "key");
  for (const [text, secret] of [
    ["abc", "abc"],
    ["abc\n", "abc"],
    ["abc\r\n", "abc"],
    ["abc\n\n", "abc\n"],
  ] as const) {
    writeFileSync(path, text);
    assert.equal(readSecretFile(path), secret);
  }
  assert.equal(readSecretFile(join(directory.path, "none")), undefined);
});

void test("a path that is not a regular file, or too large, is refused as a secret by a sentence that names it", () => {
  using directory = temporary();
  const path = join(directory.path, "key");
  mkdirSync(path);
  assert.throws(() => readSecretFile(path), /not a regular file/);
  const large = join(directory.path, "large");
  writeFileSync(large, "x".repeat(5000));
  assert.throws(() => readSecretFile(large), /longer than 4096 bytes/);
  const link = join(directory.path, "link");
  symlinkSync("/dev/zero", link);
  assert.throws(() => readSecretFile(link), /not a regular file/);
});

void test("if many processes generate a secret at once, all get the same one, in a private file, and no other file remains", async () => {
  using directory = temporary();
  const path = join(directory.path, "secrets/api-key");
  const source = new URL("../src/secret.ts", import.meta.url).href;
  const code = `import { parentPort } from "node:worker_threads"; import { randomUUID } from "node:crypto";
    const { readOrGenerateSecretFile } = await import(${JSON.stringify(source)});
    parentPort.postMessage(readOrGenerateSecretFile(${JSON.stringify(path)}, () => randomUUID()));`;
  const workers = Array.from({ length: 8 }, () => new Worker(new URL(`data:text/javascript,${encodeURIComponent(code)}`)));
  const results = await Promise.all(
    workers.map((worker) => new Promise<{ secret: string; generated: boolean }>((resolve, reject) => worker.once("message", resolve).once("error", reject))),
  );
  assert.equal(new Set(results.map((result) => result.secret)).size, 1);
  assert.equal(results.filter((result) => result.generated).length, 1);
  assert.equal(statSync(path).mode & 0o777, 0o600);
  assert.deepEqual(readdirSync(join(directory.path, "secrets")), ["api-key"]);
  assert.equal(readOrGenerateSecretFile(path, () => "other").secret, results[0]?.secret);
});
