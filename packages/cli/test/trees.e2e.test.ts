// Whole trees of files are copied into a sandbox and back unchanged, on each driver.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readlinkSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { needs } from "@svc/harness/needs.ts";
import { until } from "@svc/harness/until.ts";
import { type Live, openLive } from "./live.ts";
import { mainFile } from "./svc.ts";

const probe = fileURLToPath(new URL("./tree-probe.py", import.meta.url));
const programs = { gvisor: "runsc", runc: "runc", bubblewrap: "bwrap" } as const;
const ROUNDS = 4;

for (const runtime of ["gvisor", "runc", "bubblewrap"] as const) {
  void test(`random trees go into a sandbox and come back equal: ${runtime}`, needs("root", "envd", "base", "python3", programs[runtime]), async () => {
    await using live = await openLive({ runtime });
    const here = live.place.directory;
    const python = (...words: string[]) => execFileSync("python3", [probe, ...words], { encoding: "utf8", maxBuffer: 64 << 20 });
    const sent = await live.svc(["upload", live.sandboxID, probe, "/tmp/probe.py"]);
    assert.equal(sent.code, 0, sent.stderr);
    for (let round = 0; round < ROUNDS; round++) {
      const seed = String(Math.floor(Math.random() * 2 ** 31));
      const source = join(here, `source-${round}`);
      python("plant", source, seed);
      const up = await live.svc(["upload", live.sandboxID, source, `/tmp/there-${round}`]);
      assert.deepEqual([up.code, /lost/.test(up.stderr)], [0, false], up.stderr);
      const inside = await live.svc(["exec", live.sandboxID, "-u", "root", "--", "python3", "/tmp/probe.py", "describe", `/tmp/there-${round}`]);
      assert.equal(inside.stdout, python("describe", source), `seed ${seed}, inside: ${inside.stderr}`);
      const down = await live.svc(["download", live.sandboxID, `/tmp/there-${round}`, `back-${round}`]);
      assert.equal(down.code, 0, down.stderr);
      assert.equal(python("describe", join(here, `back-${round}`)), python("describe", source), `seed ${seed}, back`);
    }
  });
}

void describe("trees of files", needs("root", "runsc", "envd", "base"), () => {
  let live: Live;
  let here: string;
  before(async () => {
    live = await openLive();
    here = live.place.directory;
  });
  after(() => live?.[Symbol.asyncDispose]());
  const svc = (...words: string[]) => live.svc(words);
  const sh = async (script: string) => (await svc("exec", live.sandboxID, "--", "sh", "-c", script)).stdout;
  /** Arguments with bytes that are not UTF-8 can be passed to a program only by a shell. */
  const shell = (script: string, env: Record<string, string> = {}) =>
    spawnSync("sh", ["-c", `svc() { ${JSON.stringify(process.execPath)} ${JSON.stringify(mainFile)} "$@"; }; ID=${live.sandboxID}; ${script}`], {
      cwd: here,
      env: live.place.env({ SDK_API_KEY: live.node.apiKey, SVC_URL: live.node.url, ...env }),
    });

  void test("node_modules/.bin arrives with its links, and runs", async () => {
    mkdirSync(join(here, "project/node_modules/.bin"), { recursive: true });
    mkdirSync(join(here, "project/node_modules/tool"));
    writeFileSync(join(here, "project/node_modules/tool/cli.sh"), "#!/bin/sh\necho the tool ran\n", { mode: 0o755 });
    symlinkSync("../tool/cli.sh", join(here, "project/node_modules/.bin/tool"));
    const up = await svc("upload", live.sandboxID, "project", "/tmp/project");
    assert.equal(up.code, 0, up.stderr);
    assert.equal(await sh("/tmp/project/node_modules/.bin/tool; readlink /tmp/project/node_modules/.bin/tool"), "the tool ran\n../tool/cli.sh\n");
    assert.equal((await svc("upload", live.sandboxID, "project/.", "/tmp/project", "--force")).code, 0, "again, over itself");
    assert.equal((await svc("download", live.sandboxID, "/tmp/project", "back")).code, 0);
    assert.equal(readlinkSync(join(here, "back/node_modules/.bin/tool")), "../tool/cli.sh");
  });

  void test("a link out of what is downloaded is refused with its name, and nothing is written", async () => {
    await sh("mkdir -p /tmp/out/sub; cd /tmp/out; echo x > file; ln -s /etc/passwd absolute; ln -s sub/../../x sub/climbs; ln -s ../file sub/inside");
    const refused = await svc("download", live.sandboxID, "/tmp/out", "out");
    assert.equal(refused.code, 1);
    assert.match(
      refused.stderr,
      /nothing copied: \/tmp\/out\/absolute is a symbolic link out of what is copied, to \/etc\/passwd, .*climbs.*--skip-outside-links/,
    );
    assert.ok(!readdirSync(here).includes("out"));
    const skipped = await svc("download", live.sandboxID, "/tmp/out", "out", "--skip-outside-links");
    assert.equal(skipped.code, 0, skipped.stderr);
    assert.deepEqual([readdirSync(join(here, "out")).sort(), readdirSync(join(here, "out/sub"))], [["file", "sub"], ["inside"]]);
    assert.equal((await svc("download", live.sandboxID, "/tmp/out", "none", "--skip-links")).code, 0);
    assert.deepEqual(readdirSync(join(here, "none/sub")), []);
  });

  void test("a link that would lead through a link that already exists here is refused", async () => {
    await sh("mkdir -p /tmp/over; ln -s door/passwd /tmp/over/link");
    mkdirSync(join(here, "over"));
    symlinkSync("/etc", join(here, "over/door"));
    const refused = await svc("download", live.sandboxID, "/tmp/over/.", "over");
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /the link link would lead over .*over\/door/);
    assert.deepEqual(readdirSync(join(here, "over")), ["door"]);
  });

  void test("names that are not UTF-8 can be uploaded and downloaded, also when given on the command line", async () => {
    const made = shell(
      "mkdir bytes; printf one > \"$(printf 'bytes/caf\\351')\"; svc upload $ID bytes /tmp/bytes && svc upload $ID \"$(printf 'bytes/caf\\351')\" /tmp/single",
    );
    assert.equal(made.status, 0, made.stderr.toString());
    const listed = await sh("ls /tmp/bytes | od -An -c");
    assert.match(listed, /c\s+a\s+f\s+351/);
    const got = shell(
      "svc download $ID \"$(printf '/tmp/bytes/caf\\351')\" \"$(printf 'out\\377')\" && cat \"$(printf 'out\\377')\"; svc download $ID /tmp/bytes all && ls all | od -An -c",
    );
    assert.equal(got.status, 0, got.stderr.toString());
    assert.match(got.stdout.toString(), /^one\s+c\s+a\s+f\s+351/);
  });

  void test("arguments and variables of exec keep every byte", () => {
    const ran = shell(
      'V="$(printf \'v\\377\')"; export V; svc exec -e V -e "W=$(printf \'w\\200\')" $ID -- sh -c \'printf "%s %s %s" "$1" "$V" "$W" | od -An -tx1\' sh "$(printf \'caf\\351 \\357\\277\\275\')"',
    );
    assert.equal(ran.stdout.toString().trim(), "63 61 66 e9 20 ef bf bd 20 76 ff 20 77 80", ran.stderr.toString());
  });

  void test("bytes that cannot be sent are refused, not replaced", () => {
    for (const words of ["start base -d -m \"a=$(printf 'b\\351')\"", "start base -d -e \"A=$(printf '\\351')\"", "delete \"$(printf 'i\\351')\""]) {
      const refused = shell(`svc ${words}`);
      assert.equal(refused.status, 2);
      assert.match(refused.stderr.toString(), /expected text in UTF-8, got bytes that are none: .*\\xe9/);
    }
  });

  void test("a file with a hole uses no more space here than its data", async () => {
    await sh("mkdir /tmp/sparse; truncate -s 200M /tmp/sparse/image; printf end >> /tmp/sparse/image");
    assert.equal((await svc("download", live.sandboxID, "/tmp/sparse", "sparse")).code, 0);
    const { size, blocks } = statSync(join(here, "sparse/image"));
    assert.equal(size, 200 * 1024 * 1024 + 3);
    assert.ok(blocks * 512 < 10_000_000, `${blocks * 512} bytes`);
    assert.equal((await svc("upload", live.sandboxID, "sparse", "/tmp/again")).code, 0);
    assert.equal(await sh("cmp /tmp/sparse/image /tmp/again/image && tail -c 3 /tmp/again/image"), "end");
  });

  void test("a file that becomes shorter while it is read does not arrive", async () => {
    mkdirSync(join(here, "cut"));
    execFileSync("sh", ["-c", "head -c 400000000 /dev/urandom > cut/shrinks"], { cwd: here });
    const child = live.spawn(["upload", live.sandboxID, "cut", "/tmp/cut"]);
    let words = "";
    child.stderr.on("data", (text) => (words += text));
    await until("the upload under way", async () => ((await sh("ls -A /tmp | grep svc-copy")) !== "" ? true : undefined));
    execFileSync("truncate", ["-s", "10", join(here, "cut/shrinks")]);
    const code = await new Promise((resolve) => child.once("exit", resolve));
    assert.equal(code, 1, words);
    assert.match(words, /File shrank/);
    assert.equal(await sh("ls -A /tmp | grep -e svc-copy -e '^cut'"), "");
  });

  void test("an upload that is killed leaves no temporary file", async () => {
    const child = live.spawn(["upload", live.sandboxID, "-", "/tmp/killed/file"]);
    child.stdin.write(Buffer.alloc(1_000_000));
    await until("the temporary folder", async () => ((await sh("ls -A /tmp/killed 2>/dev/null")) !== "" ? true : undefined));
    child.kill("SIGKILL");
    await until("its end", async () => ((await sh("ls -A /tmp/killed")) === "" ? true : undefined));
  });
});
