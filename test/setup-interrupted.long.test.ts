// Set-up in a fresh Debian root, killed with SIGKILL inside each of its steps: the next run continues, and nothing incomplete is used.
import assert from "node:assert/strict";
import { existsSync, globSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { FreshRoot, type Said } from "./fresh-root.ts";

const CACHE = "/var/cache/svc";

void test("set-up that is killed inside each of its steps is complete after one more run", needs("root", "mmdebstrap", "unshare"), async (t) => {
  using fresh = new FreshRoot();
  let begunMs = 0;
  const isOfThisRun = (file: string) => statSync(file).ctimeMs > begunMs;
  /** Checks the step's output in this run. */
  const said = (step: string, text: RegExp) => (): boolean => {
    const file = join(fresh.root, CACHE, "logs", `${step}.log`);
    return existsSync(file) && isOfThisRun(file) && text.test(readFileSync(file, "utf8"));
  };
  /** Checks for files that the step created in this run. */
  const made = (pattern: string) => (): boolean => globSync(join(fresh.root, pattern)).some(isOfThisRun);
  const moments: readonly (readonly [string, () => boolean])[] = [
    ["apt-first while it unpacks", said("apt-first", /^Unpacking (.*\n)*Unpacking /m)],
    ["apt-first while it configures", said("apt-first", /^Setting up /m)],
    ["go", made("var/cache/svc/go/.making-*/*")],
    ["node", made("var/cache/svc/node/.making-*/*")],
    ["apt while it unpacks", said("apt", /^Unpacking (.*\n)*Unpacking /m)],
    ["apt while it configures", said("apt", /^Setting up /m)],
    ["apt while it ends, with every program in its place", said("apt", /^Processing triggers /m)],
    ["host", said("host", /^/)],
    ["npm", made("opt/svc/.making-node_modules/node_modules")],
    ["base", made("var/cache/svc/templates/.making-*/rootfs/usr/bin")],
    ["runsc", made("var/cache/svc/runsc/.making-*/source/runsc")],
    ["envd", made("var/cache/svc/envd/.making-*")],
    ["native", made("var/cache/svc/native/.making-*/objects/CMakeFiles")],
  ];
  // Steps run in parallel, so we take whichever moment comes first, until none is left or everything is done.
  const left = new Map(moments);
  for (let code: Said["code"] = "SIGKILL"; code === "SIGKILL"; ) {
    begunMs = Date.now();
    let met = "";
    const ended = await fresh.run(["/opt/svc/svc", "setup"], {
      killWhen() {
        met ||= [...left].find(([, isThere]) => isThere())?.[0] ?? "";
        return met !== "";
      },
    });
    ({ code } = ended);
    left.delete(met);
    t.diagnostic(`${met === "" ? "nothing left" : met}: ended with ${code} after ${(ended.tookMs / 1000).toFixed(1)} s`);
    if (code !== "SIGKILL") assert.equal(code, 0, ended.output);
  }
  assert.deepEqual([...left.keys()], [], "each of these was killed in its turn");
  const whole = await fresh.svc("setup");
  assert.equal(whole.code, 0, whole.output);
  const again = await fresh.svc("setup");
  assert.equal(again.output.trim(), `svc: everything is in place in ${CACHE}`);
  assert.equal((await fresh.run(["find", CACHE, "-maxdepth", "3", "-name", ".making-*"])).output, "");
  assert.equal((await fresh.run(["dpkg", "--audit"])).output, "");
  assert.equal((await fresh.runInGvisor("6*7")).output.trim(), "42");
});

void test("set-up continues where dpkg was killed while it unpacked a package", needs("root", "mmdebstrap", "unshare"), async () => {
  using fresh = new FreshRoot();
  const steps = ["setup", "--only", "apt-first", "apt"];
  const first = await fresh.svc(...steps);
  assert.equal(first.code, 0, first.output);
  // The status that dpkg leaves: it marks a package for reinstallation before it touches the first file.
  const status = join(fresh.root, "var/lib/dpkg/status");
  const entry = /(Package: busybox-static\nStatus: )install ok installed/;
  const text = readFileSync(status, "utf8");
  assert.match(text, entry);
  writeFileSync(status, text.replace(entry, "$1install reinstreq half-installed"));
  rmSync(join(fresh.root, "bin/busybox"));
  const before = [...text.matchAll(/^Package: (.*)$/gm)].flatMap(([, name = ""]) => (name === "busybox-static" ? [] : [name])).sort();
  writeFileSync(join(fresh.root, CACHE, "apt-begun"), `${before.join("\n")}\n`);
  const next = await fresh.svc(...steps);
  assert.equal(next.code, 0, next.output);
  assert.equal((await fresh.run(["dpkg", "--audit"])).output, "");
  assert.equal((await fresh.run(["busybox", "echo", "there"])).output.trim(), "there");
});
