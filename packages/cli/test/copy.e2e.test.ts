// `svc upload` and `svc download` with a real sandbox: whole files, cp's rules, and refusals that change nothing.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { type Live, openLive } from "./live.ts";

void describe("copying", needs("root", "runsc", "envd", "base"), () => {
  let live: Live;
  let here: string;
  const content = randomBytes(3_000_000);
  before(async () => {
    live = await openLive();
    here = live.place.directory;
    mkdirSync(join(here, "project/sub/empty"), { recursive: true });
    writeFileSync(join(here, "project/a b.txt"), "text");
    writeFileSync(join(here, "project/none"), "");
    writeFileSync(join(here, "project/big"), content);
    writeFileSync(join(here, "project/sub/run.sh"), "#!/bin/sh\necho ran\n", { mode: 0o755 });
  });
  after(() => live?.[Symbol.asyncDispose]());
  const sh = async (script: string) => (await live.svc(["exec", live.sandboxID, "--", "sh", "-c", script])).stdout;
  const upload = (...words: string[]) => live.svc(["upload", live.sandboxID, ...words]);
  const download = (...words: string[]) => live.svc(["download", live.sandboxID, ...words]);

  void test("a directory arrives complete: content, empty files and directories, executable bits, owner", async () => {
    const { code, stderr } = await upload("project");
    assert.equal(code, 0, stderr);
    assert.match(stderr, /4 files, 2\.9 MiB/);
    const listing = await sh("cd project && find . -printf '%y %m %u %p\\n' | sort -k4; sub/run.sh; sha256sum < big");
    const hash = createHash("sha256").update(content).digest("hex");
    assert.equal(
      listing,
      `d 755 user .\nf 644 user ./a b.txt\nf 644 user ./big\nf 644 user ./none\nd 755 user ./sub\nd 755 user ./sub/empty\nf 755 user ./sub/run.sh\nran\n${hash}  -\n`,
    );
  });

  void test("a directory comes back unchanged", async () => {
    await upload("project", "/tmp/back", "-q");
    const { code, stdout, stderr } = await download("/tmp/back", "copy", "-q");
    assert.deepEqual([code, stdout, stderr], [0, "", ""]);
    assert.deepEqual(readFileSync(join(here, "copy/big")), content);
    assert.equal(readFileSync(join(here, "copy/none")).length, 0);
    assert.equal(statSync(join(here, "copy/sub/run.sh")).mode & 0o111, 0o111);
    assert.deepEqual(readdirSync(join(here, "copy/sub")).sort(), ["empty", "run.sh"]);
  });

  void test("targets are chosen as cp does", async () => {
    await sh("mkdir -p /tmp/into");
    await upload("project/none", "/tmp/into");
    await upload("project/none", "/tmp/into/other");
    await upload("project/none", "/tmp/made/");
    await upload("project/sub", "/tmp/into");
    await upload("project/sub/.", "/tmp/into");
    assert.equal(
      await sh("cd /tmp && find into made | sort"),
      "into\ninto/empty\ninto/none\ninto/other\ninto/run.sh\ninto/sub\ninto/sub/empty\ninto/sub/run.sh\nmade\nmade/none\n",
    );
    await download("/tmp/into/none", "new-directory/");
    assert.ok(existsSync(join(here, "new-directory/none")));
  });

  void test("nothing is replaced without --force, and then nothing at all is copied", async () => {
    await sh("mkdir -p /tmp/full/sub && echo mine > /tmp/full/none");
    const refused = await upload("project/.", "/tmp/full");
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /\/tmp\/full\/none is a file there; --force/);
    assert.equal(await sh("find /tmp/full | wc -l; cat /tmp/full/none"), "3\nmine\n");
    assert.equal((await upload("project/.", "/tmp/full", "--force")).code, 0);
    assert.equal(await sh("find /tmp/full | wc -l; cat /tmp/full/none"), "7\n");
    writeFileSync(join(here, "present"), "mine");
    assert.equal((await download("/tmp/full/none", "present")).code, 1);
    assert.equal(readFileSync(join(here, "present"), "utf8"), "mine");
  });

  void test("a file never takes the place of a directory, nor a directory that of a file, even with --force", async () => {
    await sh("mkdir -p /tmp/kinds/none; echo > /tmp/kinds/sub");
    const { code, stderr } = await upload("project/.", "/tmp/kinds", "--force");
    assert.equal(code, 1);
    assert.match(stderr, /none is a directory there, \/tmp\/kinds\/sub is a file there/);
  });

  void test("symbolic links are uploaded as they are, or left out on request", async () => {
    mkdirSync(join(here, "linked"));
    writeFileSync(join(here, "linked/file"), "x");
    symlinkSync("/etc/passwd", join(here, "linked/link"));
    assert.equal((await upload("linked", "/tmp/without", "--skip-links")).code, 0);
    assert.equal(await sh("ls /tmp/without"), "file\n");
    assert.equal((await upload("linked", "/tmp/linked")).code, 0);
    assert.equal(await sh("readlink /tmp/linked/link"), "/etc/passwd\n");
    assert.match((await download("/tmp/linked", "from-inside")).stderr, /link is a symbolic link out of what is copied/);
    assert.ok(!existsSync(join(here, "from-inside")));
  });

  void test("a link at the path of a file is neither followed nor replaced", async () => {
    mkdirSync(join(here, "trap"));
    writeFileSync(join(here, "victim"), "mine");
    symlinkSync(join(here, "victim"), join(here, "trap/none"));
    const { code, stderr } = await download("/tmp/made/none", "trap/none", "--force");
    assert.equal(code, 1);
    assert.match(stderr, /is a symbolic link there/);
    assert.equal(readFileSync(join(here, "victim"), "utf8"), "mine");
  });

  void test("only a regular file is ever replaced: a pipe, a socket, a device are never changed, here and in the sandbox", async () => {
    execFileSync("mkfifo", [join(here, "pipe")]);
    execFileSync("mknod", [join(here, "full"), "c", "1", "7"]);
    const server = createServer().listen(join(here, "socket"));
    await once(server, "listening");
    for (const name of ["pipe", "full", "socket"]) {
      const { code, stderr } = await download("/etc/hostname", name, "--force");
      assert.equal(code, 1, name);
      assert.match(stderr, new RegExp(`${name} is a special file there; only regular files are replaced`));
      assert.ok(!lstatSync(join(here, name)).isFile(), name);
    }
    server.close();
    await sh("mkfifo /tmp/pipe");
    const refused = await upload("project/none", "/tmp/pipe", "--force");
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /\/tmp\/pipe is a special file there/);
    assert.equal(await sh("stat -c %F /tmp/pipe"), "fifo\n");
  });

  void test("a download creates only the directory that its target names, and follows a link that the target names", async () => {
    const refused = await download("/etc/hostname", "no/such/place");
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /^svc: nothing copied: there is no directory .*\/no\/such here/);
    assert.match((await download("/etc/hostname", "no/such/")).stderr, /there is no directory/);
    assert.match((await download("/tmp/into/.", "no/such")).stderr, /there is no directory/);
    assert.ok(!existsSync(join(here, "no")));
    mkdirSync(join(here, "elsewhere"));
    symlinkSync(join(here, "elsewhere"), join(here, "shortcut"));
    assert.equal((await download("/etc/hostname", "shortcut")).code, 0);
    assert.equal((await download("/tmp/into/.", "shortcut")).code, 0);
    assert.deepEqual(readdirSync(join(here, "elsewhere")).sort(), ["empty", "hostname", "none", "other", "run.sh", "sub"]);
  });

  void test("stdin can be uploaded and a file downloaded to stdout", async () => {
    assert.equal((await live.svc(["upload", live.sandboxID, "-", "piped"], { input: content })).code, 0);
    assert.equal(await sh("stat -c '%U %s' piped"), `user ${content.length}\n`);
    assert.equal((await download("/etc/hostname", "-")).stdout, await sh("cat /etc/hostname"));
    assert.equal((await upload("-", "/tmp/x/")).code, 2);
  });

  void test("a file that reports no size but has content comes whole from the sandbox, and is refused here with the way to send it", async () => {
    for (const file of ["/proc/cpuinfo", "/proc/self/limits"]) {
      const got = await download(file, "-");
      assert.equal(got.code, 0, got.stderr);
      assert.equal(got.stdout.split("\n")[0], (await sh(`cat ${file}`)).split("\n")[0]);
      assert.notEqual(got.stdout, "");
      assert.equal((await download(file, "unsized", "--force")).code, 0);
      assert.notEqual(readFileSync(join(here, "unsized"), "utf8"), "");
    }
    const refused = await upload("/proc/cpuinfo", "/tmp/cpuinfo");
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /\/proc\/cpuinfo reports a size of 0 but has content, .*cat \/proc\/cpuinfo \| svc upload ID - PATH/);
  });

  void test("an upload can go where only root may write and belongs to the user; in a strict sandbox only the user's rights apply", async () => {
    assert.equal((await upload("project/none", "/root/theirs")).code, 0);
    assert.equal((await live.svc(["exec", live.sandboxID, "-u", "root", "--", "stat", "-c", "%U", "/root/theirs"])).stdout, "user\n");
    const strict = (await live.svc(["start", "base", "-d", "--strict-files"])).stdout.trim();
    const refused = await live.svc(["upload", strict, "project/none", "/root/none"]);
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /permission denied/);
    await live.svc(["delete", strict]);
    assert.equal((await upload("project/none", "/root/none", "-u", "root")).code, 0);
    assert.equal((await live.svc(["exec", live.sandboxID, "-u", "root", "--", "stat", "-c", "%U", "/root/none"])).stdout, "root\n");
  });

  void test("a missing file is reported by name", async () => {
    assert.match((await upload("no-such-file")).stderr, /^svc: there is no no-such-file here/);
    assert.match((await download("/no/such")).stderr, /^svc: there is no \/no\/such in the sandbox/);
  });

  void test("an interrupted upload leaves neither half a file nor a temporary one", async () => {
    const child = live.spawn(["upload", live.sandboxID, "-", "/tmp/broken/file"]);
    child.stdin.write(content);
    await until("the temporary file", async () => ((await sh("ls -A /tmp/broken 2>/dev/null")) !== "" ? true : undefined));
    child.kill("SIGINT");
    const code = await new Promise((resolve) => child.once("exit", resolve));
    assert.equal(code, 130);
    assert.equal(await sh("ls -A /tmp/broken"), "");
  });
});
