// The templates from inside: a login shell that forks nothing, the programs that clients expect, the host's trust store.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";

const templates = process.env["SVC_TEMPLATES_DIR"] ?? "";
type Template = { readonly source: string; readonly binds?: readonly string[]; readonly missing?: readonly string[] };

function templateNamed(name: string): Template {
  return JSON.parse(readFileSync(join(templates, name, "template.json"), "utf8")) as Template;
}

/** Runs bash in the template's root, read-only, in a separate pid namespace; the uid inside is 1000. */
function inside(name: string, ...args: readonly string[]): string {
  const binds = (templateNamed(name).binds ?? []).flatMap((path) => ["--ro-bind", path, path]);
  const sandbox = ["--ro-bind", join(templates, name, "rootfs"), "/", ...binds, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run"];
  const identity = [
    "--unshare-user",
    "--unshare-pid",
    "--uid",
    "1000",
    "--gid",
    "1000",
    "--clearenv",
    "--setenv",
    "HOME",
    "/home/user",
    "--chdir",
    "/home/user",
  ];
  return execFileSync("bwrap", [...sandbox, ...identity, "/bin/bash", ...args], { encoding: "utf8", timeout: 60_000 });
}

for (const name of ["base", "host"]) {
  void test(`a login shell of the template ${name} forks nothing`, needs("bwrap", "base"), () => {
    // The last field of loadavg is the namespace's newest pid, which is the shell's own if nothing was forked.
    const newest = 'read -r _ _ _ _ last </proc/loadavg; echo "$last $$"';
    const [last, own] = inside(name, "-l", "-c", newest).trim().split(" ");
    assert.equal(last, own);
    const [lastAfterFork, ownAfterFork] = inside(name, "-l", "-c", `: $(:); ${newest}`).trim().split(" ");
    assert.notEqual(lastAfterFork, ownAfterFork, "a fork would have been seen");
  });

  void test(`the template ${name} has the user, the locale and python`, needs("bwrap", "base"), () => {
    assert.equal(inside(name, "-l", "-c", "id -un; id -gn; cd ~; pwd").trim(), "user\nuser\n/home/user");
    assert.equal(inside(name, "-l", "-i", "-c", 'echo "$LANG"').trim(), "C.UTF-8");
    assert.equal(inside(name, "-l", "-c", "python -c 'print(6*7)'; python3 -c 'print(6*7)'").trim(), "42\n42");
    assert.doesNotMatch(inside(name, "-l", "-c", 'printf %s "$PATH"'), /:\.(:|$)/);
  });

  void test(`the template ${name} trusts the host's authorities`, needs("bwrap", "base"), (t) => {
    const bundle = "/etc/ssl/certs/ca-certificates.crt";
    if (!existsSync(bundle)) return t.skip("the host has no trust store");
    const blocks = (text: string) => new Set(text.split("-----BEGIN CERTIFICATE-----").slice(1));
    const guest = blocks(readFileSync(join(templates, name, "rootfs", bundle), "utf8"));
    assert.ok(guest.size > 0);
    const own = execFileSync("bash", ["-c", "cat /usr/local/share/ca-certificates/*.crt 2>/dev/null || true"], { encoding: "utf8" });
    for (const block of blocks(own)) assert.ok([...guest].some((other) => other.replace(/\s/g, "") === block.replace(/\s/g, "")));
  });
}

void test("the template base has every program that clients call", needs("bwrap", "base"), (t) => {
  const template = templateNamed("base");
  if (template.source === "host") return t.skip("base is an alias of host on this machine");
  const programs = ["bash", "python", "python3", "pip", "git", "curl", "sudo", "ps", "ss", "getfattr", "setfattr", "apt-get", "wget", "unzip"];
  assert.equal(inside("base", "-l", "-c", `for name in ${programs.join(" ")}; do type -P "$name" >/dev/null || echo "$name"; done`), "");
  const sudoers = join(templates, "base/rootfs/etc/sudoers.d/user");
  if (process.getuid?.() === 0) assert.match(readFileSync(sudoers, "utf8"), /^user ALL=\(ALL:ALL\) NOPASSWD:ALL$/m);
});
