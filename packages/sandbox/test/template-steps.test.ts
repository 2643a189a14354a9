// The meaning of build steps, tested alone: variables, folders, owners, keys of the cache.
// biome-ignore-all lint/suspicious/noTemplateCurlyInString: variables of a Dockerfile use this syntax
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { planFromDockerfile } from "@svc/contract/dockerfile.ts";
import type { BuildStep } from "@svc/contract/template-build.ts";
import { openLines } from "@svc/sandbox/agent/guest.ts";
import { openPace } from "@svc/sandbox/agent/pace.ts";
import { expanded, foldStep, stepKey } from "@svc/sandbox/template/build-steps.ts";
import { copySources } from "@svc/sandbox/template/copy-match.ts";
import { imageName } from "@svc/sandbox/template/image-name.ts";
import { newReference, newTemplateID, splitReference } from "@svc/sandbox/template/reference.ts";
import fc from "fast-check";

const begin = { env: { PATH: "/bin" }, user: "user", workdir: "/home/user" };
const step = (type: BuildStep["type"], ...args: string[]): BuildStep => ({ type, args });

void describe("a build's steps", () => {
  void test("apply variables, user and folder to later steps", () => {
    const env = foldStep(step("ENV", "A", "1", "PATH", "/x:$PATH", "B", "${A}2 \\$A ${NO:-else}"), begin, []).surroundings.env;
    assert.deepEqual(env, { PATH: "/x:/bin", A: "1", B: "12 $A else" });
    assert.equal(foldStep(step("USER", "me:us"), begin, []).surroundings.user, "me:us");
    const first = foldStep(step("WORKDIR", "app"), begin, []);
    assert.equal(first.surroundings.workdir, "/home/user/app");
    const second = foldStep(step("WORKDIR", "../x/./y"), first.surroundings, first.folders);
    assert.deepEqual(second.folders, [
      { path: "/home/user/app", owner: "user" },
      { path: "/home/user/x/y", owner: "user" },
    ]);
    const run = foldStep(step("RUN", "true", "root"), second.surroundings, second.folders);
    assert.deepEqual([run.folders, run.action?.folders.length, run.action?.kind === "run" ? run.action.user : ""], [[], 2, "root"]);
  });

  void test("distinguish a folder from a file in COPY's destination", () => {
    const target = (text: string) => {
      const { action } = foldStep({ ...step("COPY", "a", text, "", ""), filesHash: "0".repeat(64) }, begin, []);
      return action?.kind === "copy" ? action.target : "";
    };
    assert.deepEqual(["x", "x/", ".", "./", "/", "/opt/y", "~/z", "..", "$PATH/q", "$NOPE"].map(target), [
      ...["/home/user/x", "/home/user/x/", "/home/user/", "/home/user/", "/"],
      ...["/opt/y", "/home/user/z", "/home/", "/bin/q", "/home/user/$NOPE"],
    ]);
  });

  void test("expand a COPY's destination of a Dockerfile once: escaped text and values of variables are not expanded again", () => {
    const text = "FROM a\nARG MONEY='$HOME'\nCOPY a /x/\\$HOME\nCOPY a /y/$MONEY\nCOPY a /z/$HOME\n";
    const targets = planFromDockerfile(text).steps.map(({ args }) => {
      const { action } = foldStep({ type: "COPY", args, filesHash: "0".repeat(64) }, { env: { HOME: "/root" }, user: "root", workdir: "/" }, []);
      return action?.kind === "copy" ? action.target : "";
    });
    assert.deepEqual(targets, ["/x/$HOME", "/y/$HOME", "/z/root"]);
  });

  void test("find COPY's sources among the uploaded files", () => {
    const paths = [".", "./a.txt", "./b.txt", "./d", "./d/c.txt", "./d/e", "./d/e/f.txt", "./[x]"];
    assert.deepEqual(copySources("d/", paths), ["./d"]);
    assert.deepEqual(copySources(".", paths), ["."]);
    assert.deepEqual(copySources("*.txt", paths), ["./a.txt", "./b.txt"]);
    assert.deepEqual(copySources("*", paths), ["./[x]", "./a.txt", "./b.txt", "./d"]);
    assert.deepEqual(copySources("d/**/*.txt", paths), ["./d/c.txt", "./d/e/f.txt"]);
    assert.deepEqual(copySources("[x]", paths), ["./[x]"]);
    assert.throws(() => copySources("nope", paths), /matches nothing/);
  });

  void test("have the same key for the same action over the same layers, and a different key for any change", () => {
    const chain = { base: { rootfs: "/r", binds: [] }, layers: ["1"] };
    const { action } = foldStep(step("RUN", "x"), begin, []);
    assert.ok(action !== undefined);
    const key = stepKey(chain, action);
    assert.equal(stepKey(structuredClone(chain), structuredClone(action)), key);
    const others = [stepKey({ ...chain, layers: ["2"] }, action), stepKey({ ...chain, base: { rootfs: "/s", binds: [] } }, action)];
    for (const change of [{ user: "root" }, { workdir: "/" }, { env: {} }])
      others.push(stepKey(chain, foldStep(step("RUN", "x"), { ...begin, ...change }, []).action ?? action));
    assert.equal(new Set([key, ...others]).size, 6);
  });

  void test("expand no variable's value a second time", () => {
    fc.assert(fc.property(fc.string(), (value) => assert.equal(expanded("a${V}b", { V: value }), `a${value}b`)));
  });

  void test("are read at most at 4 MiB per second after 16 MiB of output, and a step with little output never waits", () => {
    let now = 0;
    const pace = openPace(now);
    assert.equal(pace(16 << 20, now), 0);
    for (let chunk = 0; chunk < 1024; chunk++) now += pace(64 << 10, now);
    assert.ok(now > 15_900 && now < 16_100, `64 MiB more took ${now} ms`);
    const quiet = openPace(0);
    for (let second = 0; second < 100; second++) assert.equal(quiet(1 << 20, second * 1000), 0);
  });

  void test("cut output into lines for any chunks, and keep the last state of a progress bar", () => {
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

void test("a template's reference is a name, with an optional tag after a colon", () => {
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
