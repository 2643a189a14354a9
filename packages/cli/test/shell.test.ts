// What a shell gets: completion of every verb and option, a manual, and programs on the pinned Node.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { openPlace } from "./svc.ts";

/** What bash would offer for the last of these words. */
function offered(script: string, words: readonly string[]): string[] {
  const typed = words.map((word) => `'${word}'`).join(" ");
  const program = `${script}\nCOMP_WORDS=(${typed}); COMP_CWORD=${words.length - 1}; _svc; printf '%s\\n' "\${COMPREPLY[@]}"`;
  return execFileSync("bash", ["-c", program], { encoding: "utf8" }).split("\n").filter(Boolean);
}

void test("bash completes verbs, verbs below them, options and the words that an option takes", async () => {
  await using place = openPlace();
  const { code, stdout } = await place.svc(["completion", "bash"]);
  assert.equal(code, 0);
  assert.deepEqual(offered(stdout, ["svc", "templ"]), ["template"]);
  assert.ok(offered(stdout, ["svc", "template", ""]).includes("build"));
  assert.ok(offered(stdout, ["svc", ""]).includes("indexer"));
  assert.deepEqual(offered(stdout, ["svc", "list", "--out"]), ["--output"]);
  assert.deepEqual(offered(stdout, ["svc", "list", "-o", ""]), ["table", "json"]);
});

void test("zsh and fish have their own, and another shell is answered with those there are", async () => {
  await using place = openPlace();
  assert.match((await place.svc(["completion", "zsh"])).stdout, /^#compdef svc\n/);
  assert.match((await place.svc(["completion", "fish"])).stdout, /complete -c svc -f -n '__fish_use_subcommand' -a start -d /);
  const { code, stderr } = await place.svc(["completion", "csh"]);
  assert.equal(code, 2);
  assert.match(stderr, /bash, zsh, fish/);
});

void test("the manual names every verb with its options", async () => {
  await using place = openPlace();
  const { stdout } = await place.svc(["man"]);
  assert.match(stdout, /^\.TH SVC 1/);
  for (const verb of ["start", "exec", "template build", "snapshot list", "up"]) assert.ok(stdout.includes(`.SS svc ${verb} `), verb);
  assert.doesNotMatch(stdout, /[^\\]--[a-z]/, "a dash that man would set as a hyphen");
});

void test("a program runs on the pinned Node, finds the tree's packages, and its exit code is passed on", async () => {
  await using place = openPlace();
  const file = join(place.directory, "a program.ts");
  writeFileSync(
    file,
    `import { SvcClient } from "@svc/contract/client.ts";
const words: string[] = process.argv.slice(2);
console.log(JSON.stringify({ words, client: typeof SvcClient, url: process.env["E2B_API_URL"], node: process.version }));
process.exitCode = 3;`,
  );
  const { code, stdout } = await place.svc(["run", file, "--task", "7"], { env: { SVC_URL: "http://127.0.0.1:9" } });
  assert.deepEqual(JSON.parse(stdout), { words: ["--task", "7"], client: "function", url: "http://127.0.0.1:9", node: process.version });
  assert.equal(code, 3);
  const missing = await place.svc(["run", "nowhere.ts"]);
  assert.equal(missing.code, 2);
  assert.match(missing.stderr, /there is no file .*nowhere\.ts/);
  assert.match((await place.svc(["run", place.directory])).stderr, /: expected a file with a program in TypeScript or JavaScript, got a folder/);
  const typed = join(place.directory, "typed.ts");
  writeFileSync(typed, "const one = 1;\nenum Size { small }\n");
  const untyped = await place.svc(["run", typed]);
  assert.equal(untyped.code, 2);
  assert.match(untyped.stderr, /typed\.ts(:2)?: .*enum is not supported/);
  writeFileSync(typed, 'import "@nobody/nothing";\n');
  assert.match((await place.svc(["run", typed])).stderr, /Cannot find package '@nobody\/nothing' imported from .*typed\.ts/);
});
