// What the steps of a build mean, by themselves: variables, folders, owners, keys of the cache.
// biome-ignore-all lint/suspicious/noTemplateCurlyInString: variables of a Dockerfile are spelled so
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { BuildStep } from "@svc/contract/template-build.ts";
import { copySources } from "@svc/sandbox/template/copy-match.ts";
import { openLines } from "@svc/sandbox/template/guest.ts";
import { imageName } from "@svc/sandbox/template/image-name.ts";
import { newReference, newTemplateID, splitReference } from "@svc/sandbox/template/reference.ts";
import { expanded, foldStep, workKey } from "@svc/sandbox/template/steps.ts";
import fc from "fast-check";

const begin = { env: { PATH: "/bin" }, user: "user", workdir: "/home/user" };
const step = (type: BuildStep["type"], ...args: string[]): BuildStep => ({ type, args });

void describe("a build's steps", () => {
  void test("fold variables, user and folder into what later steps see", () => {
    const env = foldStep(step("ENV", "A", "1", "PATH", "/x:$PATH", "B", "${A}2 \\$A ${NO:-else}"), begin, []).surroundings.env;
    assert.deepEqual(env, { PATH: "/x:/bin", A: "1", B: "12 $A else" });
    assert.equal(foldStep(step("USER", "me:us"), begin, []).surroundings.user, "me");
    const first = foldStep(step("WORKDIR", "app"), begin, []);
    assert.equal(first.surroundings.workdir, "/home/user/app");
    const second = foldStep(step("WORKDIR", "../x/./y"), first.surroundings, first.folders);
    assert.deepEqual(second.folders, [
      { path: "/home/user/app", owner: "user" },
      { path: "/home/user/x/y", owner: "user" },
    ]);
    const run = foldStep(step("RUN", "true", "root"), second.surroundings, second.folders);
    assert.deepEqual([run.folders, run.work?.folders.length, run.work?.kind === "run" ? run.work.user : ""], [[], 2, "root"]);
  });

  void test("tell a folder from a file in COPY's destination", () => {
    const target = (text: string) => {
      const { work } = foldStep({ ...step("COPY", "a", text, "", ""), filesHash: "0".repeat(64) }, begin, []);
      return work?.kind === "copy" ? work.target : "";
    };
    assert.deepEqual(["x", "x/", ".", "./", "/", "/opt/y", "~/z", "..", "$PATH/q", "$NOPE"].map(target), [
      ...["/home/user/x", "/home/user/x/", "/home/user/", "/home/user/", "/"],
      ...["/opt/y", "/home/user/z", "/home/", "/bin/q", "/home/user/$NOPE"],
    ]);
  });

  void test("find COPY's sources among what was uploaded", () => {
    const paths = [".", "./a.txt", "./b.txt", "./d", "./d/c.txt", "./d/e", "./d/e/f.txt", "./[x]"];
    assert.deepEqual(copySources("d/", paths), ["./d"]);
    assert.deepEqual(copySources(".", paths), ["."]);
    assert.deepEqual(copySources("*.txt", paths), ["./a.txt", "./b.txt"]);
    assert.deepEqual(copySources("*", paths), ["./[x]", "./a.txt", "./b.txt", "./d"]);
    assert.deepEqual(copySources("d/**/*.txt", paths), ["./d/c.txt", "./d/e/f.txt"]);
    assert.deepEqual(copySources("[x]", paths), ["./[x]"]);
    assert.throws(() => copySources("nope", paths), /matches nothing/);
  });

  void test("have the same key for the same work over the same layers, and another one for any change", () => {
    const chain = { base: { rootfs: "/r", binds: [] }, layers: ["1"] };
    const { work } = foldStep(step("RUN", "x"), begin, []);
    assert.ok(work !== undefined);
    const key = workKey(chain, work);
    assert.equal(workKey(structuredClone(chain), structuredClone(work)), key);
    const others = [workKey({ ...chain, layers: ["2"] }, work), workKey({ ...chain, base: { rootfs: "/s", binds: [] } }, work)];
    for (const change of [{ user: "root" }, { workdir: "/" }, { env: {} }])
      others.push(workKey(chain, foldStep(step("RUN", "x"), { ...begin, ...change }, []).work ?? work));
    assert.equal(new Set([key, ...others]).size, 6);
  });

  void test("expand no variable's value a second time", () => {
    fc.assert(fc.property(fc.string(), (value) => assert.equal(expanded("a${V}b", { V: value }), `a${value}b`)));
  });

  void test("cut output into lines whatever the chunks, and keep the last state of a progress bar", () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: fc.constantFrom("a", "ä", "\n", "€") }), { maxLength: 10 }), fc.integer({ min: 1, max: 5 }), (parts, size) => {
        const bytes = Buffer.from(parts.join(""));
        const lines: string[] = [];
        const cutter = openLines((line) => lines.push(line));
        for (let at = 0; at < bytes.length; at += size) cutter.push(bytes.subarray(at, at + size));
        cutter.end();
        const expected = parts.join("").split("\n");
        if (expected.at(-1) === "") expected.pop();
        assert.deepEqual(lines, expected);
      }),
    );
    const lines: string[] = [];
    const cutter = openLines((line) => lines.push(line));
    cutter.push(Buffer.from("10%\r50%\r100%\r\ndone\r\n"));
    assert.deepEqual(lines, ["100%", "done"]);
  });
});

void test("a template's reference is a name, with a tag behind a colon", () => {
  assert.deepEqual(splitReference("a:b:c"), { name: "a", tag: "b:c" });
  assert.deepEqual(newReference("my-app:v1"), { name: "my-app", tag: "v1" });
  for (const wrong of ["", "A", "a b", "a:", ":a", "a:b c", "-a", "a/b"]) assert.throws(() => newReference(wrong), { name: "INVALID_REQUEST" });
  assert.match(newTemplateID(), /^[a-z0-9]{20}$/);
});

void test("an image's name without a host belongs to the registry of the settings", () => {
  const settings = { registry: "reg.example:5000", insecure_registries: ["reg.example:5000"] };
  assert.deepEqual(imageName("python:3", settings), { host: "reg.example:5000", full: "reg.example:5000/python:3", insecure: true });
  assert.equal(imageName("team/app", settings).full, "reg.example:5000/team/app:latest");
  assert.deepEqual(imageName("ghcr.io/a/b:1", settings), { host: "ghcr.io", full: "ghcr.io/a/b:1", insecure: false });
  assert.equal(imageName(`localhost/a:1@sha256:${"0".repeat(64)}`, settings).full, `localhost/a@sha256:${"0".repeat(64)}`);
  const none = { ...settings, registry: "" };
  assert.deepEqual(imageName("python:3.13", none), { host: "docker.io", full: "docker.io/library/python:3.13", insecure: false });
  assert.equal(imageName("grafana/grafana", none).full, "docker.io/grafana/grafana:latest");
  assert.equal(imageName("docker.io/ubuntu:22.04", settings).full, "docker.io/library/ubuntu:22.04");
  for (const wrong of ["a b", "UPPER/x", "x:y:z", "-a", "a@sha256:1"]) assert.throws(() => imageName(wrong, settings), { name: "INVALID_REQUEST" });
});
