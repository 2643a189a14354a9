// The entry and its cheap steps: messages, locks, resuming, the host template.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync, symlinkSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { layModules, SetupTree } from "./setup-tree.ts";

void test("a command of the entry with an unknown argument says so and installs nothing", async () => {
  using tree = new SetupTree();
  const cases: readonly (readonly [readonly string[], RegExp])[] = [
    [["setup", "--fast"], /setup knows no option --fast/],
    [["setup", "--only"], /--only asks for the name of a step: .*runsc/],
    [["setup", "--only", "kernel"], /there is no step named kernel; the steps are: .*runsc/],
    [["uninstall", "--force"], /uninstall knows no option --force/],
    [["up", "nosuch"], /up takes flags, got "nosuch"/],
    [["node", "nosuch"], /node takes flags, got "nosuch"/],
    [["test", "--bogus"], /test knows no option --bogus/],
    [["test", "setup", "nosuch"], /there is no test named nosuch/],
    [["bench", "--bogus"], /bench knows no option --bogus/],
    [["test", "--against", "HEAD"], /test knows no option --against/],
    [["bench", "nosuch"], /there is no bench named nosuch/],
  ];
  for (const [args, says] of cases) {
    const { code, stderr } = await tree.run(args);
    assert.equal(code, 2, stderr);
    assert.match(stderr, says);
  }
  assert.equal(existsSync(tree.cache), false);
});

void test("without pip, npm and apt the entry names what it needs and what to install", async () => {
  using tree = new SetupTree();
  const { code, stdout, stderr } = await tree.run(["list"], { PATH: tree.barePath() });
  assert.equal(code, 1, stderr);
  assert.equal(stdout, "");
  assert.match(stderr, /neither pip nor npm/);
  assert.match(stderr, /install python3-pip \(or npm\)/);
  assert.match(stderr, /logs\/node\.log/);
  assert.match(stderr, /cannot go on without node/);
});

void test("a cache without write permission is named with the variable that moves it", async () => {
  using tree = new SetupTree();
  writeFileSync(join(tree.folder, "file"), "");
  const { code, stderr } = await tree.run(["list"], { SVC_CACHE: join(tree.folder, "file/cache") });
  assert.equal(code, 1);
  assert.match(stderr, /set SVC_CACHE to a folder of yours/);
});

void test("after set-up a command prints only its own output", async (t) => {
  using tree = new SetupTree();
  layModules(tree);
  const node = tree.echoNode();
  const tookMs: number[] = [];
  for (let run = 0; run < 5; run++) {
    const started = performance.now();
    const { code, stdout, stderr } = await tree.run(["exec", "abc", "--", "echo", "two words"], { SVC_NODE: node });
    tookMs.push(performance.now() - started);
    assert.equal(code, 0, stderr);
    assert.equal(stderr, "");
    assert.deepEqual(stdout.trimEnd().split("\n").slice(1), [join(tree.tree, "packages/cli/src/main.ts"), "exec", "abc", "--", "echo", "two words"]);
  }
  t.diagnostic(`the entry took ${Math.min(...tookMs).toFixed(0)} ms at best before the command`);
  assert.ok(Math.min(...tookMs) < 600, "ten times what it may take");
});

void test("commands of the store, the transfer engine and the indexer do not wait for templates or sandbox runtimes", async () => {
  using tree = new SetupTree();
  const env = { SVC_NODE: tree.echoNode(), PATH: tree.barePath() };
  layModules(tree);
  for (const args of [
    ["store", "leader"],
    ["store", "master", "--home", "x"],
    ["metadata", "--port", "1"],
    ["transfer", "ls"],
    ["index", "status"],
  ]) {
    const { code, stderr } = await tree.run(args, env);
    assert.equal(code, 0, stderr);
    assert.doesNotMatch(stderr, /go …|envd …|runsc …|host …|base …|bubblewrap/, args.join(" "));
  }
});

void test("a package that is missing from node_modules, or of another version, is noticed", async () => {
  using tree = new SetupTree();
  const env = { SVC_NODE: tree.echoNode(), PATH: tree.barePath() };
  const file = join(tree.tree, "node_modules/left/package.json");
  for (const [content, noticed] of [
    ['{\n  "version": "1.2.3"\n}', false],
    ['{\n  "version": "1.2.4"\n}', true],
    ["", true],
  ] as const) {
    layModules(tree);
    writeFileSync(file, content);
    const { stderr } = await tree.run(["list"], env);
    assert.equal(/npm …/.test(stderr), noticed, `${content}: ${stderr}`);
  }
});

void test("the host template is created at once and the link names it", async () => {
  using tree = new SetupTree();
  const { code, stderr } = await tree.run(["setup", "--only", "host"]);
  assert.equal(code, 0, stderr);
  assert.match(stderr, /where the time went/);
  const templates = join(tree.cache, "templates");
  const template = JSON.parse(readFileSync(join(templates, "host/template.json"), "utf8")) as Record<string, unknown>;
  assert.equal(template["name"], "host");
  assert.ok((template["binds"] as string[]).includes("/usr"));
  assert.match(String(template["templateID"]), /^[0-9a-f]{20}$/);
  assert.equal(readlinkSync(join(templates, "host")), `host-${String(template["recipe"])}`);
  for (const file of ["etc/profile", "etc/sudoers.d/user", "home/user/.bashrc", "etc/passwd"])
    assert.ok(existsSync(join(templates, "host/rootfs", file)), file);
  const again = await tree.run(["setup", "--only", "host"]);
  assert.equal(again.stderr, "", "what is there is not made again");
});

void test("if no Debian root can be created, base is an alias of host and gives the reason", async () => {
  using tree = new SetupTree();
  const { stderr } = await tree.run(["setup", "--only", "host", "base"], { PATH: tree.barePath("mmdebstrap") });
  assert.match(stderr, /mmdebstrap is not installed; base is an alias of host/);
  const templates = join(tree.cache, "templates");
  const aliases = JSON.parse(readFileSync(join(templates, "aliases.json"), "utf8")) as Record<string, { template: string; reason: string }>;
  assert.equal(aliases["base"]?.template, readlinkSync(join(templates, "host")));
  assert.equal(aliases["base"]?.template, readlinkSync(join(templates, "base")));
  assert.match(aliases["base"]?.reason ?? "", /mmdebstrap/);
});

void test("a second ./svc waits for the first one's step and says so", async () => {
  using tree = new SetupTree();
  mkdirSync(join(tree.cache, "locks"), { recursive: true });
  const holding = [join(tree.cache, "locks/host.lock"), "sh", "-c", 'echo $$ >"$0"; echo held; exec sleep 1000', join(tree.cache, "locks/host.lock")];
  const holder = spawn("flock", holding, { stdio: ["ignore", "pipe", "ignore"], detached: true });
  try {
    await once(holder.stdout, "data");
    const second = tree.start(["setup", "--only", "host"]);
    for (let look = 0; look < 3000 && !/waiting/.test(second.says()); look++) await delay(20);
    await delay(300);
    assert.equal(existsSync(join(tree.cache, "templates/host")), false, "the lock keeps the second out");
    process.kill(-(holder.pid ?? 0), "SIGKILL");
    const { code, stderr } = await second.done;
    assert.equal(code, 0, stderr);
    assert.match(stderr, /host: another \.\/svc \(process \d+\) is making it; waiting, for 30 minutes at the longest/);
    assert.ok(existsSync(join(tree.cache, "templates/host/template.json")));
  } finally {
    if (holder.exitCode === null && holder.signalCode === null) process.kill(-(holder.pid ?? 0), "SIGKILL");
  }
});

void test("a set-up killed half-way is resumed by the next one, and leaves nothing incomplete", async () => {
  using tree = new SetupTree();
  const templates = join(tree.cache, "templates");
  const entries = () => (existsSync(templates) ? readdirSync(templates) : []);
  // A program that set-up calls before it is done, and that does not return.
  const slow = join(tree.folder, "slow");
  mkdirSync(slow);
  writeFileSync(join(slow, "du"), "#!/bin/sh\nexec sleep 1000\n", { mode: 0o755 });
  const first = tree.start(["setup", "--only", "host"], { PATH: `${slow}:${process.env["PATH"]}` });
  for (let look = 0; look < 5000 && !entries().some((name) => name.startsWith(".making-")); look++) await delay(2);
  // One check can miss a process that is just starting another program.
  for (let quietLooks = 0; quietLooks < 3; await delay(10)) quietLooks = tree.killAll() === 0 ? quietLooks + 1 : 0;
  await first.done;
  assert.equal(existsSync(join(templates, "host")), false, "the kill came before the end");
  assert.ok(entries().some((name) => name.startsWith(".making-")));
  const { code, stderr } = await tree.run(["setup", "--only", "host"]);
  assert.equal(code, 0, stderr);
  assert.deepEqual(
    entries().filter((name) => name.startsWith(".")),
    [],
  );
  assert.deepEqual(
    readdirSync(tree.cache).filter((name) => name.startsWith(".run-")),
    [],
  );
});

void test("runsc is kept under the hash of our changes to it, and a patch that was written for another release is named", () => {
  const root = new URL("..", import.meta.url).pathname;
  const folder = join(root, "setup/runsc");
  const programs = readdirSync(join(folder, "programs")).sort();
  assert.deepEqual(programs, ["gofer_amd64.go", "gofer_arm64.go", "sentry_amd64.go", "sentry_arm64.go"]);
  const filesOf = (part: string) =>
    readdirSync(join(folder, part), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => relative(folder, join(entry.parentPath, entry.name)));
  const names = ["tune.sh", ...["files", "patches", "programs"].flatMap(filesOf)].sort();
  const hash = createHash("sha256");
  for (const name of names) hash.update(`${name}\n`).update(readFileSync(join(folder, name)));
  const tuning = hash.digest("hex").slice(0, 8);
  assert.match(readFileSync(join(root, "setup/versions.sh"), "utf8"), new RegExp(`^SVC_RUNSC_TUNING=${tuning}$`, "m"), `write SVC_RUNSC_TUNING=${tuning}`);
  // The reason of a patch stands above it.
  for (const name of filesOf("patches")) assert.match(readFileSync(join(folder, name), "utf8"), /^[A-Z`/1-9][^\n]{20,}\n(?:[^\n]+\n)*\n--- a\//, name);

  using tree = new SetupTree();
  const patch = join(tree.folder, "0001-more.patch");
  writeFileSync(patch, "More is better.\n\n--- a/source.go\n+++ b/source.go\n@@ -1,3 +1,3 @@\n const (\n-\tmost = 128\n+\tmost = 256\n )\n");
  const file = join(tree.folder, "source.go");
  const apply = (text: string) => {
    writeFileSync(file, text);
    const script = `set -eu; SVC_RUNSC_VERSION=v9; source "$1"; apply_patch "$2" "$3"`;
    return spawnSync("bash", ["-c", script, "bash", join(folder, "tune.sh"), patch, tree.folder], { encoding: "utf8" });
  };
  assert.equal(apply("const (\n\tmost = 128\n)\n").status, 0);
  assert.equal(readFileSync(file, "utf8"), "const (\n\tmost = 256\n)\n");
  for (const text of ["const (\n\tmost = 64\n)\n", "const (\n\tmost = 256\n)\n"]) {
    const { status, stdout } = apply(text);
    assert.equal(status, 1);
    assert.match(stdout, /0001-more\.patch does not apply to runsc v9; setup\/runsc\/README\.md says/);
    assert.equal(readFileSync(file, "utf8"), text);
  }
});

void test("addons are found in a tree whose path has a space, and the base template's last step runs there", () => {
  using tree = new SetupTree();
  const root = join(tree.folder, "a tree");
  symlinkSync(new URL("..", import.meta.url).pathname, root);
  const step = (script: string) =>
    spawnSync("bash", ["-euo", "pipefail", "-c", script, "bash"], { env: { ...process.env, SVC_ROOT: root }, encoding: "utf8", cwd: tree.folder });
  const probed = step('bash -euo pipefail "$SVC_ROOT/setup/step.sh" native probe');
  assert.equal(probed.status, 0, probed.stderr);
  // This imitates mmdebstrap's hooks: the shell runs them with the new root's path as an argument.
  const hooked = step(`mmdebstrap() { local word; for word; do case $word in --customize-hook=*) sh -c "\${word#*=}" exec "$PWD/a root";; esac; done; }
    source "$SVC_ROOT/setup/paths.sh"; source "$SVC_ROOT/setup/steps/base.sh"; bootstrap "$PWD"`);
  assert.match(hooked.stderr, /^chroot: .*a root/m, hooked.stdout);
  assert.doesNotMatch(hooked.stderr, /not found/);
});
