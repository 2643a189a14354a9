// The `--help` of a server: every flag and setting with its default, its choices and its meaning.
import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import { configHelp } from "../src/config-help.ts";

const text = `# About the file.

[thing]
# Where it listens.
listen = "0.0.0.0:80"
# How long it waits,
# in seconds.
first_wait = 5
second_wait = 6

[other]
# Nobody's here.
colour = "red"
`;
const defaults = { thing: { listen: "0.0.0.0:80", first_wait: 5, second_wait: 6 }, other: { colour: "red" }, foreign: { key: 1 } };
const schema = z.object({
  thing: z.object({ listen: z.string(), first_wait: z.number(), second_wait: z.number() }),
  other: z.object({ colour: z.enum(["red", "blue"]) }),
});
const help = configHelp(
  { server: "thing", about: "does things.\n  --clear  removes all", schema, flagNames: { listen: "thing.listen" }, hasOwnFile: false },
  text,
  defaults,
);

void test("a server's help shows each setting with its comment from config/default.toml, its choices and its default", () => {
  for (const says of [
    "Usage: svc thing [options] [--SETTING VALUE]...\n\ndoes things.\n",
    "Examples:\n  svc thing --listen 0.0.0.0:80\n",
    "  --clear\n      removes all\n",
    "--listen VALUE                               same as --thing.listen\n",
    '  --thing.listen VALUE\n      Where it listens. (default: "0.0.0.0:80")\n',
    "  --thing.first_wait N (default: 5)\n  --thing.second_wait N (default: 6)\n      How long it waits, in seconds.\n",
    '  --other.colour VALUE\n      Nobody\'s here. (one of red, blue; default: "red")\n',
  ])
    assert.ok(help.includes(says), `${JSON.stringify(says)} is not in\n${help}`);
});

void test("a server's help leaves out the settings of other servers", () => {
  assert.doesNotMatch(help, /foreign/);
});
