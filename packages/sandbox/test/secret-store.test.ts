// The file of secrets: values encrypted, changes kept, and a file that cannot be read refused and left alone.
import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Failure } from "@svc/contract/failures.ts";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { authorityPath, openAuthority } from "../src/secrets/authority.ts";
import { openSecretStore } from "../src/secrets/store.ts";

const KEY = "k".repeat(64);
const SEED = "s".repeat(64);

function within(work: (path: string, home: string) => void | Promise<void>): () => Promise<void> {
  return async () => {
    const home = makeHome();
    try {
      await work(join(home, "egress-secrets.json"), home);
    } finally {
      removeHome(home);
    }
  };
}

function storeAt(path: string, { key = KEY, maxSecrets = 100 } = {}) {
  let changes = 0;
  const store = openSecretStore({ path, key, seed: SEED, maxSecrets, onChange: () => changes++, now: Date.now });
  return { ...store, changes: () => changes };
}

const named = (name: string) => (error: unknown) => error instanceof Failure && error.name === name;

void test(
  "a value is encrypted in the file, which only its owner can read, and is there after a restart",
  within((path) => {
    const first = storeAt(path);
    first.create("api", "hidden-value", { team: "a" });
    first.create("other", "hidden-value", {});
    assert.equal(statSync(path).mode & 0o777, 0o600);
    const text = readFileSync(path, "utf8");
    assert.ok(!text.includes("hidden-value") && !text.includes(Buffer.from("hidden-value").toString("base64")));
    const { secrets } = JSON.parse(text) as { secrets: { sealed: string }[] };
    assert.notEqual(secrets[0]?.sealed, secrets[1]?.sealed, "equal values do not look alike");
    const next = storeAt(path);
    assert.equal(next.value("api"), "hidden-value");
    assert.equal(next.get("api").currentVersion, 1);
    next.update("api", "another", undefined);
    assert.deepEqual([next.value("api"), next.get("api").currentVersion, next.get("api").metadata, next.changes()], ["another", 2, { team: "a" }, 1]);
  }),
);

void test(
  "a damaged file, a foreign key and an exchanged value are refused with a sentence, and the file stays as it is",
  within((path) => {
    storeAt(path).create("one", "value one", {});
    storeAt(path).create("two", "value two", {});
    const intact = readFileSync(path, "utf8");
    const parsed = JSON.parse(intact) as { version: number; secrets: { sealed: string }[] };
    const [a, b] = parsed.secrets;
    const exchanged = JSON.stringify({ ...parsed, secrets: [{ ...a, sealed: b?.sealed }, b] });
    for (const text of [intact.slice(0, -20), "", "{}", '{"version":2,"secrets":[]}', exchanged]) {
      writeFileSync(path, text);
      const store = storeAt(path);
      for (const act of [
        () => store.page(10, undefined),
        () => store.create("three", "x", {}),
        () => store.update("one", "x", undefined),
        () => store.delete("one"),
        () => store.value("two"),
      ])
        assert.throws(act, named("SECRETS_DAMAGED"), text.slice(0, 40));
      assert.throws(() => store.get("one"), /cannot be used: .*Nothing in it was changed/);
      assert.equal(readFileSync(path, "utf8"), text);
    }
    writeFileSync(path, intact);
    assert.throws(() => storeAt(path, { key: "another key of the deployment" }).value("one"), /does not open with this deployment's secret/);
    assert.equal(readFileSync(path, "utf8"), intact);
    const store = storeAt(path);
    assert.equal(store.value("one"), "value one", "a restored file works");
  }),
);

void test(
  "a repaired file is read without a restart",
  within((path) => {
    storeAt(path).create("one", "value", {});
    const intact = readFileSync(path, "utf8");
    writeFileSync(path, "nonsense");
    const store = storeAt(path);
    assert.throws(() => store.get("one"), named("SECRETS_DAMAGED"));
    writeFileSync(path, intact);
    assert.equal(store.value("one"), "value");
  }),
);

void test(
  "two nodes that exchange their records end with the same secrets, whichever deployment secret each has",
  within((path) => {
    const [a, b] = [storeAt(path), storeAt(`${path}-b`, { key: "another deployment secret" })];
    const exchange = () => {
      for (const [from, to] of [[a, b] as const, [b, a] as const]) assert.deepEqual(to.settle(from.records(from.stamps().map(({ name }) => name))), []);
    };
    a.create("one", "from a", { team: "a" });
    b.create("two", "from b", {});
    a.create("both", "from a", {});
    b.create("both", "from b", {});
    exchange();
    assert.deepEqual([b.value("one"), a.value("two"), b.get("one").metadata], ["from a", "from b", { team: "a" }]);
    assert.equal(a.value("both"), b.value("both"), "one of two made at once wins on both");
    assert.deepEqual(a.get("both"), b.get("both"));
    const before = [a.changes(), b.changes()];
    exchange();
    assert.deepEqual([a.changes(), b.changes()], before, "nothing changes if nothing is new");

    b.update("one", "rotated", undefined);
    a.delete("two");
    exchange();
    assert.deepEqual([a.value("one"), a.get("one").currentVersion], ["rotated", 2]);
    assert.throws(() => b.value("two"), named("SECRET_NOT_FOUND"));
    const next = storeAt(`${path}-b`, { key: "another deployment secret" });
    assert.ok(
      next.stamps().some(({ name, isDeleted }) => name === "two" && isDeleted),
      "it stays known as deleted over a restart",
    );
    assert.ok(!readFileSync(`${path}-b`, "utf8").includes("from b"));
    b.create("two", "anew", {});
    exchange();
    assert.equal(a.value("two"), "anew");
  }),
);

void test(
  "a record that was sealed under another seed or for another secret is refused by its name, and changes nothing",
  within((path) => {
    const [a, b] = [storeAt(path), storeAt(`${path}-b`)];
    a.create("one", "value one", {});
    a.create("two", "value two", {});
    const [one, two] = a.records(["one", "two"]);
    assert.ok(one !== undefined && two !== undefined);
    assert.deepEqual(b.settle([{ ...one, sealed: two.sealed }, two]), ["one"]);
    assert.throws(() => b.get("one"), named("SECRET_NOT_FOUND"));
    assert.equal(b.value("two"), "value two");
    const stranger = openSecretStore({ path: `${path}-c`, key: KEY, seed: "another seed", maxSecrets: 100, onChange() {}, now: Date.now });
    assert.deepEqual(stranger.settle([one]), ["one"]);
  }),
);

void test(
  "more secrets than the setting allows are refused",
  within((path) => {
    const store = storeAt(path, { maxSecrets: 1 });
    store.create("one", "x", {});
    assert.throws(() => store.create("two", "x", {}), /egress.max_secrets/);
  }),
);

void test(
  "the authority is the same on every node of a deployment and after a restart, and its file holds no key",
  within((_, home) => {
    const other = makeHome();
    try {
      const [first, again, elsewhere] = [home, home, other].map((each) => openAuthority(each, KEY, Date.now));
      assert.ok(first !== undefined && again !== undefined && elsewhere !== undefined);
      assert.equal(first.certificate, again.certificate);
      const keyOf = (pem: string) => new X509Certificate(pem).publicKey.export({ type: "spki", format: "pem" });
      assert.equal(keyOf(first.certificate), keyOf(elsewhere.certificate));
      // A certificate that one node issued is accepted where another node's is installed.
      assert.ok(new X509Certificate(elsewhere.issue("api.example.com").certificate).verify(new X509Certificate(first.certificate).publicKey));
      assert.notEqual(keyOf(openAuthority(makeInside(home), `${KEY}x`, Date.now).certificate), keyOf(first.certificate));
      assert.ok(!readFileSync(authorityPath(home), "utf8").includes("PRIVATE"));
    } finally {
      removeHome(other);
    }
  }),
);

function makeInside(home: string): string {
  return join(home, "another");
}

void test(
  "an authority of the operator's own is used, and one that does not fit its key stops the node with a sentence",
  within((_, home) => {
    const made = openAuthority(home, KEY, Date.now);
    writeFileSync(join(home, "secrets/egress-ca-key.pem"), made.issue("x.example.com").key, { mode: 0o600 });
    assert.throws(() => openAuthority(home, KEY, Date.now), /is not the certificate of an authority with the key in/);
    writeFileSync(join(home, "secrets/egress-ca-key.pem"), "no key");
    assert.throws(() => openAuthority(home, KEY, Date.now), named("SETTING_INVALID"));
  }),
);
