// `./svc uninstall`: it asks first, removes only its own files, ends what runs, and names what it could not remove.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, readFileSync, realpathSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { layModules, SetupTree } from "./setup-tree.ts";
import { sourceFiles } from "./source-files.ts";

void test("uninstall asks first, and then leaves nothing", async () => {
  using tree = new SetupTree();
  layModules(tree);
  await tree.run(["setup", "--only", "host"]);
  mkdirSync(join(tree.home, "secrets"), { recursive: true });
  mkdirSync(join(tree.folder, ".config/svc"), { recursive: true });
  writeFileSync(join(tree.folder, ".config/svc/credentials"), "");
  const unasked = await tree.run(["uninstall"]);
  assert.equal(unasked.code, 1);
  assert.match(unasked.stderr, /nothing was removed; without a terminal, run \.\/svc uninstall --yes\n/);
  const one = await tree.run(["uninstall", "--home", tree.home]);
  const shown = one.stderr.split("run ./svc uninstall --yes --home ")[1]?.trim().replaceAll("\\ ", " ");
  assert.equal(shown, realpathSync(tree.home), "as typed it removes no more than was asked for");
  assert.ok(existsSync(join(tree.cache, "templates/host")));
  const { code, stderr } = await tree.run(["uninstall", "--yes"]);
  assert.equal(code, 0, stderr);
  assert.deepEqual([tree.cache, tree.home, join(tree.tree, "node_modules"), join(tree.folder, ".config/svc")].filter(existsSync), []);
});

void test("uninstall needs neither Node nor envd if nothing of the home runs, and removes nothing if something does", async () => {
  using tree = new SetupTree();
  const bare = { PATH: tree.barePath() };
  mkdirSync(join(tree.cache, "locks"), { recursive: true });
  mkdirSync(join(tree.cache, "logs"));
  mkdirSync(join(tree.home, "secrets"), { recursive: true });
  writeFileSync(join(tree.home, "sandboxes.db"), "");
  const sandbox = spawn("sh", ["-c", "echo runs; read -r _", join(tree.home, "sandboxes/one")], { stdio: ["pipe", "pipe", "ignore"] });
  await once(sandbox.stdout, "data");
  const refused = await tree.run(["uninstall", "--yes"], bare);
  assert.equal(refused.code, 1);
  assert.match(refused.stderr, /could not be ended, so nothing was removed/);
  assert.ok(existsSync(join(tree.home, "sandboxes.db")));
  sandbox.stdin.end();
  await once(sandbox, "exit");
  const { code, stderr } = await tree.run(["uninstall", "--yes"], bare);
  assert.equal(code, 0, stderr);
  assert.deepEqual([tree.cache, tree.home].filter(existsSync), []);
});

void test("uninstall --home removes only that home, and no other home, cache or package", async () => {
  using tree = new SetupTree();
  layModules(tree);
  await tree.run(["setup", "--only", "host"]);
  const other = join(tree.folder, "other home");
  for (const home of [tree.home, other]) mkdirSync(join(home, "secrets"), { recursive: true });
  const { code, stdout, stderr } = await tree.run(["uninstall", "--yes", "--home", other]);
  assert.equal(code, 0, stderr);
  const empty = join(tree.folder, "empty");
  mkdirSync(empty);
  assert.match(stdout, /other home is gone; other homes and what set-up made are as they were/);
  assert.deepEqual([other, tree.home, join(tree.cache, "templates/host"), join(tree.tree, "node_modules")].map(existsSync), [false, true, true, true]);
  for (const [flags, says] of [
    [["--home", join(tree.folder, "none")], /--home: expected the folder of a home, got ".*none", which is not there; nothing was removed/],
    [["--home"], /--home: expected the folder of a home, got ""/],
    [["--home", empty], /--home: expected the folder of a home, got ".*empty", in which no server has left anything; nothing was removed/],
    [["--home", tree.home, "--packages"], /other homes need the packages/],
  ] as const) {
    const refused = await tree.run(["uninstall", "--yes", ...flags]);
    assert.equal(refused.code, 2);
    assert.match(refused.stderr, says);
  }
  assert.deepEqual([tree.home, empty].map(existsSync), [true, true]);
});

void test("uninstall --home recognizes the home of a server without a node by its files", async () => {
  using tree = new SetupTree();
  layModules(tree);
  await tree.run(["setup", "--only", "host"]);
  for (const file of ["store/log-0000000000000001.log", "store-service/identity.json", "store-admin/records", "indexer/index.snapshot", "metadata/records/1"]) {
    const home = join(tree.folder, "a home");
    mkdirSync(join(home, file, ".."), { recursive: true });
    writeFileSync(join(home, file), "");
    const { code, stderr } = await tree.run(["uninstall", "--yes", "--home", home]);
    assert.equal(code, 0, stderr);
    assert.equal(existsSync(home), false);
  }
  const theirs = join(tree.folder, "theirs");
  mkdirSync(join(theirs, "store"), { recursive: true });
  assert.equal((await tree.run(["uninstall", "--yes", "--home", theirs])).code, 2);
  assert.equal(existsSync(theirs), true);
});

void test("uninstall --home names what it could not end, also of a cluster's nodes, then removes nothing, and ignores other homes", async () => {
  using tree = new SetupTree();
  const bare = { PATH: tree.barePath() };
  const home = join(tree.folder, "cluster");
  for (const name of ["nodes/1", "nodes/2"]) mkdirSync(join(home, name), { recursive: true });
  const hold = async (word: string) => {
    const held = spawn("sh", ["-c", "echo runs; read -r _", word], { stdio: ["pipe", "pipe", "ignore"] });
    await once(held.stdout, "data");
    return held;
  };
  const [stranger, sandbox] = [await hold(`--root=${home}-of-another/run`), await hold(`--root=${home}/nodes/2/run`)];
  try {
    const refused = await tree.run(["uninstall", "--yes", "--home", home], bare);
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /could not be ended, so nothing was removed/);
    assert.match(refused.stderr, new RegExp(`process ${sandbox.pid}: sh .*--root=${home}/nodes/2/run`));
    assert.doesNotMatch(refused.stderr, new RegExp(`process (?!${sandbox.pid}:)`));
    assert.ok(existsSync(join(home, "nodes/2")));
    sandbox.stdin.end();
    await once(sandbox, "exit");
    const { code, stderr } = await tree.run(["uninstall", "--yes", "--home", home], bare);
    assert.equal(code, 0, stderr);
    assert.equal(existsSync(home), false);
    assert.equal(stranger.exitCode, null);
  } finally {
    stranger.kill("SIGKILL");
    sandbox.kill("SIGKILL");
  }
});

void test("uninstall names the remaining network parts of its home, with the command that removes each", needs("root", "ip", "nft"), async () => {
  using tree = new SetupTree();
  const home = join(tree.folder, "alone");
  mkdirSync(join(home, "secrets"), { recursive: true });
  const token = createHash("sha256").update(realpathSync(home)).digest("hex").slice(0, 6);
  const run = (...args: readonly [string, ...string[]]) => spawnSync(args[0], args.slice(1));
  try {
    run("ip", "netns", "add", `svc-${token}-2`);
    run("nft", "add", "table", "inet", `svc_${token}`);
    run("ip", "link", "add", `svc-${token}-3`, "type", "veth", "peer", "name", `svc${token}peer`);
    const { code, stderr } = await tree.run(["uninstall", "--yes", "--home", home]);
    assert.equal(code, 1);
    const commands = [`ip netns del svc-${token}-2`, `ip link del svc-${token}-3`, `nft delete table inet svc_${token}`];
    assert.deepEqual(
      stderr.match(/^ {4}.*/gm)?.map((line) => line.trim()),
      commands,
      stderr,
    );
    assert.equal(existsSync(home), false);
  } finally {
    run("ip", "netns", "del", `svc-${token}-2`);
    run("ip", "link", "del", `svc-${token}-3`);
    run("nft", "delete", "table", "inet", `svc_${token}`);
  }
});

void test("uninstall empties a home that is a separate file system, and removes its cgroups", needs("root"), async () => {
  using tree = new SetupTree();
  const home = join(tree.folder, "mounted");
  mkdirSync(home);
  const run = (...args: readonly [string, ...string[]]) => assert.equal(spawnSync(args[0], args.slice(1)).status, 0, args.join(" "));
  const hash = createHash("sha256").update(realpathSync(home)).digest("hex").slice(0, 8);
  const top = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].find(existsSync) ?? "";
  run("mount", "-t", "tmpfs", "tmpfs", home);
  try {
    mkdirSync(join(home, "secrets"));
    mkdirSync(join(top, `svc-${hash}/one`), { recursive: true });
    const { code, stdout, stderr } = await tree.run(["uninstall", "--yes", "--home", home]);
    assert.equal(code, 0, stderr);
    assert.match(stdout, /mounted is a file system of its own; it is empty now and stays mounted/);
    assert.deepEqual(readdirSync(home), []);
    assert.equal(existsSync(join(top, `svc-${hash}`)), false);
  } finally {
    run("umount", home);
  }
});

void test("uninstall knows every name that a server uses in its home", () => {
  const root = join(import.meta.dirname, "..");
  const kept = /kept_names='([^']*)'/.exec(readFileSync(join(root, "setup/uninstall.sh"), "utf8"))?.[1]?.split(/\s+/) ?? [];
  const sources = sourceFiles(root).filter((file) => /^packages\/(?!harness)[^/]+\/src\/.*\.ts$/.test(file));
  const used = sources.flatMap((file) =>
    [...readFileSync(join(root, file), "utf8").matchAll(/\bjoin\((?:parts\.)?home, "([^"/]+)/g)].map(([, name = ""]) =>
      name.replace(/^\./, "").replace(/\..*/, ""),
    ),
  );
  assert.ok(used.length > 20, `${used.length} names`);
  assert.deepEqual(
    used.filter((name) => !kept.includes(name)),
    [],
  );
});

void test("uninstall does not touch a folder that is not svc's", async () => {
  using tree = new SetupTree();
  mkdirSync(tree.home);
  writeFileSync(join(tree.home, "diary"), "mine");
  const { stderr } = await tree.run(["uninstall", "--yes"]);
  assert.match(stderr, /does not look like a folder of svc and is left alone/);
  assert.equal(readFileSync(join(tree.home, "diary"), "utf8"), "mine");
});

void test("uninstall removes nothing of a home that also contains other people's files, and names them", async () => {
  using tree = new SetupTree();
  mkdirSync(join(tree.home, "secrets"), { recursive: true });
  for (const name of ["node.json", "sandboxes.db-wal", ".node.json.1.tmp", "thesis.txt", ".profile"]) writeFileSync(join(tree.home, name), "{}");
  for (const args of [["--yes"], ["--yes", "--home", tree.home]]) {
    const { code, stderr } = await tree.run(["uninstall", ...args]);
    assert.equal(code, 1);
    assert.match(stderr, /nothing was removed: .* also holds what no server of svc made; .*\n {4}thesis\.txt\n {4}\.profile\n$/);
  }
  assert.equal(existsSync(join(tree.home, "thesis.txt")), true);
  assert.equal(existsSync(join(tree.home, "node.json")), true);
});
