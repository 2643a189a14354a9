// The node's secrets: their sources, in the specified order, and their forms.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { loadApiKey } from "@svc/kit/api-key.ts";
import { openInitKeys } from "../src/agent/init-keys.ts";
import { keysFrom, keysOfHome } from "../src/cluster/deployment-secret.ts";
import { loadSeed, sweepHalfWritten } from "../src/node/serve/secrets.ts";
import { seal, unseal } from "../src/secrets/seal.ts";

function temporary() {
  const path = mkdtempSync(join(tmpdir(), "svc-secrets-"));
  return { path, mounted: join(path, "mounted"), [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}

const key = (letter: string) => letter.repeat(32);

void test("the API key comes from SVC_API_KEY, then the mounted file, then the home, in this order", () => {
  using home = temporary();
  const sources = { home: home.path, mountedKeyPath: home.mounted };
  mkdirSync(join(home.path, "secrets"));
  writeFileSync(join(home.path, "secrets/api-key"), `${key("h")}\n`);
  assert.equal(loadApiKey({ ...sources, env: {} }).secret, key("h"));
  writeFileSync(home.mounted, key("m"));
  assert.equal(loadApiKey({ ...sources, env: {} }).secret, key("m"));
  assert.equal(loadApiKey({ ...sources, env: { SVC_API_KEY: key("e") } }).secret, key("e"));
});

void test("a node that finds no key generates one with the prefix sdk_, private, and the same at the next start", () => {
  using home = temporary();
  const sources = { home: home.path, mountedKeyPath: home.mounted, env: {} };
  const first = loadApiKey(sources);
  assert.match(first.secret, /^sdk_[0-9a-f]{64}$/);
  assert.equal(first.generated, true);
  assert.equal(statSync(join(home.path, "secrets/api-key")).mode & 0o777, 0o600);
  assert.deepEqual([loadApiKey(sources).secret, loadApiKey(sources).generated], [first.secret, false]);
});

void test("an API key has 32 to 256 URL-safe characters, and an invalid one is refused with its source", () => {
  using home = temporary();
  const load = (secret: string) => loadApiKey({ home: home.path, mountedKeyPath: home.mounted, env: { SVC_API_KEY: secret } });
  for (const good of ["a".repeat(32), "a".repeat(256), "Az09._~-".repeat(4)]) assert.equal(load(good).secret, good);
  for (const bad of ["a".repeat(31), "a".repeat(257), `${"a".repeat(32)} `, `${"a".repeat(32)}/`, `${"a".repeat(32)}\n`, "ä".repeat(32)]) {
    assert.throws(() => load(bad), /SVC_API_KEY has \d+ characters; expected 32 to 256/);
  }
  writeFileSync(home.mounted, "short");
  assert.throws(() => loadApiKey({ home: home.path, mountedKeyPath: home.mounted, env: {} }), /mounted has 5 characters/);
});

void test("the seed comes from the settings, or is generated once and kept", () => {
  using home = temporary();
  assert.equal(loadSeed(home.path, key("s"), false).secret, key("s"));
  const first = loadSeed(home.path, "", false);
  assert.match(first.secret, /^[0-9a-f]{64}$/);
  assert.equal(loadSeed(home.path, "", true).secret, first.secret);
  assert.equal(readFileSync(join(home.path, "secrets/sandbox-access-token-hash-seed"), "utf8"), `${first.secret}\n`);
  assert.throws(() => loadSeed(home.path, "short", false), /seed.*5 characters/);
});

void test("a lost seed is refused while sandboxes exist whose tokens depend on it", () => {
  using home = temporary();
  assert.throws(() => loadSeed(home.path, "", true), /is missing, but the tokens of existing sandboxes/);
  assert.equal(loadSeed(home.path, key("s"), true).secret, key("s"));
});

void test("a new home's keys come from its deployment secret, and stay whatever the API key and the seed are", () => {
  using home = temporary();
  const keys = keysOfHome(home.path, "");
  const secret = readFileSync(join(home.path, "secrets/deployment-secret"), "utf8").trim();
  assert.match(secret, /^[0-9a-f]{64}$/);
  assert.deepEqual([keysOfHome(home.path, ""), keysFrom(secret)], [keys, keys]);
  assert.notEqual(keys.initSeed, keys.uploadKey);
  using other = temporary();
  const given = join(other.path, "mounted");
  writeFileSync(given, `${secret}\n`);
  assert.deepEqual(keysOfHome(other.path, given), keys);
  assert.throws(() => keysOfHome(other.path, join(other.path, "none")), /deployment_secret_file: .*none is not there/);
});

void test("a home that changes its deployment secret keeps the keys under which its checkpoints were made", () => {
  using home = temporary();
  const first = openInitKeys(home.path, "01".repeat(32)).current;
  const keys = openInitKeys(home.path, "02".repeat(32));
  assert.notEqual(keys.current, first);
  assert.equal(keys.signer(first).asymmetricKeyType, "ed25519");
  keys.add("03".repeat(32));
  assert.equal(openInitKeys(home.path, "02".repeat(32)).seeds().length, 3);
  assert.throws(() => keys.signer("somebody else's"), { name: "SANDBOX_START_FAILED", message: /created in another deployment/ });
});

void test("a damaged key is refused with the name of its file", () => {
  using home = temporary();
  const { current } = openInitKeys(home.path, "01".repeat(32));
  const path = join(home.path, "secrets/envd-init-keys", Buffer.from(current, "base64").toString("base64url"));
  for (const damaged of ["nonsense", "02".repeat(32)]) {
    writeFileSync(path, damaged);
    assert.throws(() => openInitKeys(home.path, "01".repeat(32)), /envd-init-keys\/.* is damaged/);
  }
});

void test("a sealed text opens only with the same key for the same purpose, and only unchanged", () => {
  const sealed = seal("secret", key("k"), "one");
  assert.equal(unseal(sealed, key("k"), "one"), "secret");
  assert.notEqual(seal("secret", key("k"), "one"), sealed);
  const bytes = Buffer.from(sealed, "base64");
  bytes[bytes.length - 1] = (bytes.at(-1) as number) ^ 1;
  for (const wrong of [
    unseal(sealed, key("l"), "one"),
    unseal(sealed, key("k"), "two"),
    unseal(bytes.toString("base64"), key("k"), "one"),
    unseal("", key("k"), "one"),
  ])
    assert.equal(wrong, undefined);
});

void test("a killed start's half-written file next to a secret is removed, and nothing else", () => {
  using home = temporary();
  loadSeed(home.path, "", false);
  const left = join(home.path, "secrets/api-key.123.0a1b2c3d");
  writeFileSync(left, "half");
  sweepHalfWritten(home.path);
  assert.throws(() => statSync(left));
  assert.ok(statSync(join(home.path, "secrets/sandbox-access-token-hash-seed")));
});
