// Settings: which source beats which, and what a wrong one is answered with.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { z } from "zod";
import { loadConfig } from "../src/config.ts";

const schema = z.object({
  node: z.object({ listen: z.string(), log_level: z.enum(["info", "warn", "debug", "error"]) }),
  sandbox: z.object({ pids: z.number().int().min(16), access_token_hash_seed: z.string() }),
  pool: z.object({ templates: z.array(z.string()) }),
});

function load(argv: string[], env: Record<string, string> = {}) {
  const loaded = loadConfig({ server: "node", schema, flagNames: { listen: "node.listen" }, argv, env, about: "a test" });
  assert.notEqual(loaded, "help");
  return loaded as Exclude<typeof loaded, "help">;
}

function file(text: string) {
  const directory = mkdtempSync(join(tmpdir(), "svc-config-"));
  const path = join(directory, "svc.toml");
  writeFileSync(path, text);
  return { path, [Symbol.dispose]: () => rmSync(directory, { recursive: true, force: true }) };
}

void test("a flag beats the environment, which beats the chosen file, which beats the shipped defaults", () => {
  using chosen = file('[node]\nlog_level = "warn"\n[sandbox]\npids = 100\naccess_token_hash_seed = "from-file"\n');
  assert.equal(load([]).settings.node.log_level, "info");
  const fromFile = load(["--config", chosen.path]).settings;
  assert.equal(fromFile.node.log_level, "warn");
  assert.equal(fromFile.sandbox.pids, 100);
  assert.equal(fromFile.node.listen, "0.0.0.0:8000");
  const env = { SVC_NODE_LOG_LEVEL: "error", SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED: "from-env" };
  const fromEnv = load(["--config", chosen.path], env).settings;
  assert.equal(fromEnv.node.log_level, "error");
  assert.equal(fromEnv.sandbox.access_token_hash_seed, "from-env");
  assert.equal(load(["--config", chosen.path, "--node.log_level=debug"], env).settings.node.log_level, "debug");
});

void test("--config beats SVC_CONFIG_PATH", () => {
  using one = file("[sandbox]\npids = 111\n");
  using two = file("[sandbox]\npids = 222\n");
  assert.equal(load([], { SVC_CONFIG_PATH: one.path }).settings.sandbox.pids, 111);
  assert.equal(load(["--config", two.path], { SVC_CONFIG_PATH: one.path }).settings.sandbox.pids, 222);
});

void test("a list is given with commas, a short flag is a spelling of its setting, and --home beats SVC_HOME", () => {
  const loaded = load(["--pool.templates=base=8,host=2", "--listen", "127.0.0.1:0", "--home", "/a/b"], { SVC_HOME: "/c" });
  assert.deepEqual(loaded.settings.pool.templates, ["base=8", "host=2"]);
  assert.deepEqual(load(["--pool.templates", '["base=8","host=2"]']).settings.pool.templates, ["base=8", "host=2"], "or as in the file");
  assert.throws(() => load(["--pool.templates", "[base=8"]), /expected a list such as a,b or \["a", "b"\], got/);
  assert.equal(loaded.settings.node.listen, "127.0.0.1:0");
  assert.equal(loaded.home, "/a/b");
  assert.equal(load([], { SVC_HOME: "/c" }).home, "/c");
});

void test("two spellings of one setting on a command line are refused, since one would win in silence", () => {
  assert.throws(() => load(["--listen=127.0.0.1:1", "--node.listen=127.0.0.1:2"]), /--node\.listen and --listen are the same setting: give one of them/);
  assert.equal(load(["--listen=127.0.0.1:1", "--listen=127.0.0.1:2"]).settings.node.listen, "127.0.0.1:2", "one spelling twice: the last one, as everywhere");
});

void test("a wrong setting is refused by a sentence that names it, where it came from and what was found", () => {
  assert.throws(() => load([], { SVC_SANDBOX_PIDS: "many" }), /SVC_SANDBOX_PIDS: expected a number, got "many"/);
  assert.throws(() => load(["--sandbox.pids=3"]), /sandbox\.pids \(flag --sandbox\.pids\).*got 3/);
  assert.throws(() => load(["--node.log_level=loud"]), /node\.log_level.*"loud"/);
  assert.throws(() => load(["--no-such-flag"]), /no-such-flag/);
  assert.throws(() => load(["--config", "/no/such/file"]), /\/no\/such\/file cannot be read/);
});

void test("a file with an unknown section, an unknown setting, or a broken line is refused by name", () => {
  using section = file("[sandbx]\npids = 100\n");
  assert.throws(() => load(["--config", section.path]), /no section \[sandbx\]/);
  using setting = file("[sandbox]\npid = 100\n");
  assert.throws(() => load(["--config", setting.path]), /no setting sandbox\.pid/);
  using broken = file("[sandbox\n");
  assert.throws(() => load(["--config", broken.path]), /is not valid TOML/);
});

void test("durations may be written with a unit, which becomes that of the setting, and a boolean flag may stand alone", () => {
  const store = z.object({
    store: z.object({ default_kv_lease_ttl_ms: z.number(), client_ttl_seconds: z.number(), compat: z.boolean(), rpc_port: z.number() }),
  });
  const flagNames = { compat: "store.compat", client_ttl: "store.client_ttl_seconds" };
  const of = (argv: string[], env: Record<string, string> = {}) => {
    const loaded = loadConfig({ server: "store master", schema: store, flagNames, argv, env, about: "a test" });
    assert.notEqual(loaded, "help");
    return (loaded as Exclude<typeof loaded, "help">).settings.store;
  };
  assert.equal(of(["--store.default_kv_lease_ttl_ms=10s"]).default_kv_lease_ttl_ms, 10_000);
  assert.equal(of(["--client_ttl", "2m"]).client_ttl_seconds, 120);
  assert.equal(of([], { SVC_STORE_CLIENT_TTL_SECONDS: "500ms" }).client_ttl_seconds, 0.5);
  assert.equal(of(["--client_ttl=7"]).client_ttl_seconds, 7);
  assert.equal(of(["--compat", "--client_ttl=7"]).compat, true);
  assert.equal(of(["--compat"]).compat, true);
  assert.equal(of(["--compat", "false"]).compat, false);
  assert.throws(() => of(["--store.rpc_port=10s"]), /expected a number, got "10s"/);
});

void test("a variable that is one slip away from a setting's is refused; others, and empty ones, are nobody's business", () => {
  for (const name of ["SVC_NODE_LOG_LEVELL", "SVC_NODE_LOG_LVEEL", "SVC_NODE_LOG_LEVE", "SVC_NODE_LOG_LEVAL"])
    assert.throws(() => load([], { [name]: "debug" }), { name: "SETTING_INVALID", message: new RegExp(`variable ${name}: .* expected SVC_NODE_LOG_LEVEL,`) });
  load([], { SVC_NODE_LOG_LEVELL: "", SVC_NODE_PORT_80_TCP: "tcp://10.0.0.1:80", SVC_HOME: "/tmp/x" });
});

void test("a home below /proc is refused: folders are asked for there without end", () => {
  for (const home of ["/proc/x", "/proc/self/x/y"]) {
    assert.throws(() => load(["--home", home]), { name: "SETTING_INVALID", message: /the home \/proc.* cannot be used/ });
    assert.throws(() => load([], { SVC_HOME: home }), { name: "SETTING_INVALID" });
  }
});

void test("a home that is an empty text is refused: the current folder would become one", () => {
  assert.throws(() => load(["--home", ""]), { name: "SETTING_INVALID", message: /--home: expected a folder, got an empty text/ });
});
