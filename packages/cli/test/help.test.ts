// The help of every verb and server: each flag once, each setting with its own text.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Command } from "commander";
import { programsHere } from "../src/servers/programs.ts";
import type { Verb } from "../src/verbs/verb.ts";
import { runVerb, verbs } from "../src/verbs.ts";
import { openPlace } from "./svc.ts";

/** Returns the flags that are listed more than once. */
function flagsTwice(help: string): readonly (string | undefined)[] {
  const flags = [...help.matchAll(/^ {2}(?:-\w, )?(--[\w.-]+)/gm)].map(([, flag]) => flag);
  return flags.filter((flag, at) => flags.indexOf(flag) !== at);
}

/** A comment that covers several settings is printed once, below all of them. */
function textsTwice(help: string): readonly string[] {
  const texts = help.split(/^ {2}(?=-)/m).flatMap((entry) => (/^\S+ \S+\n.*default:/s.test(entry) ? [entry.replace(/^.*\n/, "").replace(/\(.*$/s, "")] : []));
  return texts.filter((text, at) => !text.includes("The log level") && texts.indexOf(text) !== at);
}

const below = (verb: Command): Command[] => [verb, ...verb.commands.flatMap(below)];

void test("no verb's help lists a flag twice", () => {
  const all = below(verbs());
  assert.ok(all.length > 40, `${all.length}`);
  for (const verb of all) assert.deepEqual(flagsTwice(verb.helpInformation()), [], verb.name());
});

void test("every verb, server and program ends with 2 on a wrong command line, reports the error, and shows its usage with an example", async () => {
  const path = (verb: Command): string[] => (verb.parent === null ? [] : [...path(verb.parent), verb.name()]);
  for (const verb of below(verbs())) assert.equal(await runVerb([...path(verb), "--no-such-flag"]), 2, path(verb).join(" "));
  // Groups of verbs have no example of their own.
  for (const verb of below(verbs())) assert.ok(verb.commands.length > 0 || (verb as Verb).example?.includes("svc"), `${path(verb).join(" ")} has no example`);
  await using place = openPlace();
  const verbsOfPrograms = ["store get", "index query", "index simulate", "transfer write", "segment list"];
  for (const name of [...programsHere().map((program) => program.name), ...verbsOfPrograms, "up", "up -d"]) {
    const { code, stdout, stderr } = await place.svc([...name.split(" "), "--no-such-flag"]);
    assert.deepEqual([code, stdout], [2, ""], `${name}: ${stderr}`);
    assert.ok(stderr.includes("no-such-flag"), `${name}: ${stderr}`);
    assert.match(stderr, /\n\nUsage: svc [^\n]*\n(?: {7}[^\n]*\n)*Example: [^\n]*svc [^\n]*\nSee svc [^\n]* --help\.\n$/, name);
  }
  const value = await place.svc(["indexer", "--listen", "nowhere"]);
  assert.deepEqual([value.code, value.stderr.includes("expected HOST:PORT")], [2, true], value.stderr);
  // An error in a variable is not a usage error.
  assert.equal((await place.svc(["indexer"], { env: { SVC_INDEXER_LISTEN: "nowhere" } })).code, 1);
});

void test("svc help shows a verb's or a server's help, and names what it does not know", async () => {
  await using place = openPlace();
  for (const name of ["pause", "gateway", "store master"]) {
    const asked = await place.svc(["help", ...name.split(" ")]);
    assert.deepEqual([asked.code, asked.stdout], [0, (await place.svc([...name.split(" "), "--help"])).stdout], name);
  }
  const unknown = await place.svc(["help", "pauze"]);
  assert.equal(unknown.code, 2);
  assert.match(unknown.stderr, /unknown command 'pauze'[\s\S]*pause/);
  assert.equal((await place.svc(["help"])).code, 0);
});

void test("every server's and program's help has one form, lists no flag twice, and repeats no setting's text", async () => {
  await using place = openPlace();
  for (const { name } of programsHere()) {
    const { code, stdout } = await place.svc([...name.split(" "), "--help"]);
    assert.equal(code, 0, name);
    assert.deepEqual([flagsTwice(stdout), textsTwice(stdout)], [[], []], name);
    const headings = [...stdout.matchAll(/^(Usage|Options|Settings|Commands|Examples)\b/gm)].map(([, heading]) => heading);
    assert.deepEqual([headings[0], headings[1], headings.at(-1)], ["Usage", "Options", "Examples"], `${name} has another form of help:\n${stdout}`);
  }
});
