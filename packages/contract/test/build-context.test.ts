// A build context: matched files, ignored files, its hash, and an archive that the real tar reads.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { describe, test } from "node:test";
import { ignoreRules, openContext, uploadFiles } from "@svc/contract/build-context.ts";
import { globPattern } from "@svc/contract/glob.ts";
import fc from "fast-check";

function folder(files: Readonly<Record<string, string>>) {
  const path = mkdtempSync(join(tmpdir(), "svc-context-test-"));
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(dirname(join(path, name)), { recursive: true });
    writeFileSync(join(path, name), content);
  }
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}

void describe("a build's context", () => {
  void test("matches files, folders and patterns, and nothing that .dockerignore excludes", async () => {
    using root = folder({
      "a.txt": "",
      "b.md": "",
      "src/x.ts": "",
      "src/y.js": "",
      "src/deep/z.ts": "",
      "node_modules/m/i.js": "",
      ".env": "",
      ".dockerignore": "node_modules\n**/*.js\n!src/y.js\n.env\n",
    });
    const context = await openContext(root.path);
    const paths = (source: string) => context.entries(source).map(({ path }) => path);
    assert.deepEqual(paths("src"), ["src", "src/deep", "src/deep/z.ts", "src/x.ts", "src/y.js"]);
    assert.deepEqual(paths("./src/"), paths("src"));
    assert.deepEqual(paths("*.txt"), ["a.txt"]);
    assert.deepEqual(paths("src/**/*.ts"), ["src/deep/z.ts", "src/x.ts"]);
    assert.deepEqual(paths("."), [".dockerignore", "a.txt", "b.md", ...paths("src")]);
    assert.throws(() => context.entries("node_modules"), { name: "FILE_NOT_FOUND" });
    assert.throws(() => context.entries("nope*"), /nothing in .* matches/);
  });

  void test("hashes contents, modes, names and links, but not times", async () => {
    using root = folder({ "d/a": "1", "d/b": "2" });
    const hash = async () => (await openContext(root.path)).hash("d");
    const first = await hash();
    assert.match(first, /^[0-9a-f]{64}$/);
    utimesSync(join(root.path, "d/a"), 1, 1);
    assert.equal(await hash(), first);
    const seen = new Set([first]);
    for (const change of [
      () => chmodSync(join(root.path, "d/a"), 0o755),
      () => writeFileSync(join(root.path, "d/a"), "3"),
      () => symlinkSync("a", join(root.path, "d/l")),
      () => mkdirSync(join(root.path, "d/e")),
    ]) {
      change();
      seen.add(await hash());
    }
    assert.equal(seen.size, 5);
  });

  void test("is sent as one archive that tar unpacks to the same files, once for each hash", async () => {
    const long = `${"n".repeat(120)}/${"ä".repeat(70)}.txt`;
    using root = folder({ "d/one": "1\n", [`d/${long}`]: "long\n", "d/empty": "", "d/big": "x".repeat(300_000) });
    symlinkSync("one", join(root.path, "d/link"));
    symlinkSync("t".repeat(150), join(root.path, "d/far"));
    chmodSync(join(root.path, "d/one"), 0o750);
    using out = folder({});
    const bodies: Buffer[] = [];
    const server = createServer(async (request, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      assert.equal(Number(request.headers["content-length"]), Buffer.concat(chunks).length);
      bodies.push(Buffer.concat(chunks));
      response.end();
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    const copy = { type: "COPY" as const, args: ["d", "/x", "root", ""] };
    const told: unknown[] = [];
    const planned = await uploadFiles(
      [copy, { type: "RUN", args: ["true"] }, copy],
      await openContext(root.path),
      async () => ({ present: false, url }),
      (...what) => told.push(what[0]),
    );
    server.close();
    assert.deepEqual([bodies.length, told, planned[0]?.filesHash === planned[2]?.filesHash, planned[1]?.filesHash], [1, ["d"], true, undefined]);
    execFileSync("tar", ["-xzf", "-", "-C", out.path], { input: bodies[0] });
    assert.equal(execFileSync("diff", ["-r", "--no-dereference", join(root.path, "d"), join(out.path, "d")], { encoding: "utf8" }), "");
    assert.equal(execFileSync("stat", ["-c", "%a", join(out.path, "d/one")], { encoding: "utf8" }), "750\n");
    assert.equal(readFileSync(join(out.path, "d", long), "utf8"), "long\n");
  });

  void test("excludes files by the last rule that matches", () => {
    const rules = ignoreRules("# note\n*.log\n!keep.log\nbuild/\n/only\n**/tmp\n");
    assert.deepEqual(["a.log", "keep.log", "d/a.log", "build/x/y", "only", "d/only", "d/tmp/f", "tmp"].filter(rules.test), [
      "a.log",
      "build/x/y",
      "only",
      "d/tmp/f",
      "tmp",
    ]);
  });

  void test("understands patterns as shells do", () => {
    const cases: [string, string, boolean][] = [
      ["*.txt", "a.txt", true], ["*.txt", "d/a.txt", false], ["**/*.txt", "a.txt", true], ["**/*.txt", "d/e/a.txt", true], ["d/**", "d/e/f", true],
      ["?.c", "a.c", true], ["?.c", "ab.c", false], ["[a-c].x", "b.x", true], ["[!a-c].x", "b.x", false], ["{a,b}.x", "b.x", true], ["{a}.x", "{a}.x", true], ["[", "[", true],
      ["\\*.x", "*.x", true], ["\\*.x", "a.x", false], [".*", ".hidden", true], ["*", ".hidden", true], ["a+b(c)", "a+b(c)", true],
    ]; // biome-ignore format: a table
    for (const [pattern, path, matches] of cases) assert.equal(globPattern(pattern).test(path), matches, `${pattern} ${path}`);
    assert.throws(() => globPattern("[z-a]"), { name: "INVALID_REQUEST" });
    fc.assert(
      fc.property(
        fc.string({ unit: fc.constantFrom("a", "*", "?", "[", "]", "!", "{", "}", ",", "\\", "/", "^", "$") }),
        (text) => void globPattern(text).test("x"),
      ),
    );
  });
});
