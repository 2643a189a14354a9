// Shell support: completion of every verb and option, a manual, and programs on the pinned Node.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { programsHere } from "../src/servers/programs.ts";
import { KEY, type MoreRoutes, openControlPlane } from "./control-plane.ts";
import { mainFile, openPlace } from "./svc.ts";

const SNAPSHOT = {
  snapshotID: "s1",
  sandboxID: "i1",
  templateID: "base",
  memory: true,
  cpuCount: 2,
  memoryMB: 512,
  diskSizeMB: 1024,
  sizeBytes: 1,
  createdAt: "2026-01-31T09:05:00Z",
};

/** Returns what bash would offer for the last of these words. */
async function offered(script: string, words: readonly string[], env: Record<string, string> = {}): Promise<string[]> {
  const typed = words.map((word) => `'${word}'`).join(" ");
  const program = `${script}\nCOMP_WORDS=(${typed}); COMP_CWORD=${words.length - 1}; _svc; printf '%s\\n' "\${COMPREPLY[@]}"`;
  // bash must not block this thread, which also runs the test's server.
  const { stdout } = await promisify(execFile)("bash", ["-c", program], { env: { ...process.env, ...env } });
  return stdout.split("\n").filter(Boolean);
}

void test("bash completes verbs, verbs below them, options and the words that an option takes", async () => {
  await using place = openPlace();
  const { code, stdout } = await place.svc(["completion", "bash"]);
  assert.equal(code, 0);
  assert.deepEqual(await offered(stdout, ["svc", "templ"]), ["template"]);
  assert.ok((await offered(stdout, ["svc", "template", ""])).includes("build"));
  assert.ok((await offered(stdout, ["svc", ""])).includes("indexer"));
  assert.deepEqual(await offered(stdout, ["svc", "list", "--out"]), ["--output"]);
  assert.deepEqual(await offered(stdout, ["svc", "list", "-o", ""]), ["table", "json"]);
});

void test("svc store<TAB> offers the verbs of that program, and of every other that has verbs", async () => {
  await using place = openPlace();
  const { stdout: script } = await place.svc(["completion", "bash"]);
  for (const { name, verbs } of programsHere()) {
    if (verbs === undefined) continue;
    const help = (await place.svc([name, "--help"])).stdout;
    const commands = help.slice(help.indexOf("\nCommands:\n")).split("\n\n")[0] ?? "";
    const listed = [...commands.matchAll(/^ {2}([a-z]+)\b/gm)].map(([, verb]) => verb);
    assert.deepEqual([...new Set(listed)].sort(), [...verbs].sort(), `${name}: the table in programs.ts`);
    const shown = await offered(script, ["svc", name, ""]);
    assert.deepEqual(
      verbs.filter((verb) => !shown.includes(verb)),
      [],
      name,
    );
  }
  assert.deepEqual(await offered(script, ["svc", "store", "sta"]), ["stat", "standbys"]);
  assert.ok((await offered(script, ["svc", "store", ""])).includes("master"));
});

void test("ids of sandboxes, templates and snapshots are completed from the server", async () => {
  const more: MoreRoutes = (_request, response, url) => {
    const answer = (body: unknown) => {
      response.writeHead(200).end(JSON.stringify(body));
      return true;
    };
    if (url.pathname === "/snapshots") return answer([{ ...SNAPSHOT, names: ["ready:v1"] }]);
    return false;
  };
  await using server = await openControlPlane(more);
  await using place = openPlace();
  const env = place.env({ SDK_API_KEY: KEY, SVC_URL: server.url });
  for (const _ of [1, 2]) await place.svc(["start", "-d"], { env: { SDK_API_KEY: KEY, SVC_URL: server.url } });
  const { stdout } = await place.svc(["completion", "bash"]);
  const script = `svc() { "${process.execPath}" "${mainFile}" "$@"; }\n${stdout}`;
  const ids = async (...words: string[]) => (await offered(script, ["svc", ...words], env)).filter((word) => !word.startsWith("-"));
  assert.deepEqual(await ids("exec", ""), ["i1", "i2"]);
  assert.deepEqual(await ids("exec", "--user", "root", "i"), ["i1", "i2"]);
  assert.deepEqual(await ids("exec", "i1", ""), [], "its command is no id");
  assert.deepEqual(await ids("delete", "i1", ""), ["i1", "i2"]);
  assert.deepEqual(await ids("snapshot", "delete", ""), ["ready:v1"]);
  assert.deepEqual(
    (await offered(script, ["svc", "exec", ""], { ...env, SVC_URL: "http://127.0.0.1:9" })).filter((word) => !word.startsWith("-")),
    [],
    "a server that is away",
  );
});

void test("zsh and fish have their own scripts, and for another shell the supported ones are listed", async () => {
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
