// The command line of `svc store`: its help, its refusals, and what it reports about restarted servers.
import assert from "node:assert/strict";
import { test } from "node:test";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { runStore } from "@svc/harness/store-command.ts";
import { until } from "@svc/harness/until.ts";
import { helpOf } from "../src/cli/help.ts";
import { verbs } from "../src/cli/main.ts";
import { openClient } from "./client.ts";
import { startMaster } from "./master.ts";
import { startMember } from "./member.ts";
import { startService } from "./service.ts";

void test("a wrong command line is answered with the expected form, and an unreachable master with its address", async () => {
  const home = makeHome();
  try {
    for (const [args, code, says] of [
      [["nonsense"], 2, /svc store nonsense: expected a verb/],
      [["get"], 2, /expected KEY \[FILE\], got nothing; svc store get --help shows how/],
      [["put", ""], 2, /expected KEY \[FILE\], got ""; KEY has one character or more; svc store put --help shows how/],
      [["rm", "a", ""], 2, /expected keys of one character or more, got ""/],
      [["segments", "more"], 2, /expected no more words, got "more"/],
      [["ls", "--limit", "-1"], 2, /--limit: expected a whole number from 1 to 1000000, got "-1"/],
      [["ls", "--limit"], 2, /--limit: expected a value, got nothing; svc store ls --help/],
      [["ls", "--limit", "--after", "1"], 2, /--limit: expected a value, got --after; svc store ls --help/],
      [["rm", "k", "--force=yes"], 2, /--force: expected no value, got "yes"; svc store rm --help/],
      [["ls", "--limit", "0"], 2, /--limit: expected a whole number from 1 to 1000000, got "0"/],
      [["ls", "--nonsense"], 2, /--nonsense: svc store ls has no such flag; svc store ls --help lists its flags/],
      [["ls", "-o", "xml"], 2, /--output: expected table or json, got "xml"/],
      [["rm"], 2, /expected keys, --match PATTERN or --all, got none of them/],
      [["move", "k", "--to", "a:1"], 2, /--from: expected the name of a segment/],
      [["put", "k", "/there/is/none"], 2, /ENOENT/],
      [["put", "k"], 2, /expected a value of one byte or more, got an empty one/],
      [["devices", "create"], 2, /create: expected the id of a device behind it/],
      [["devices", "drain"], 2, /drain: expected the id of a device behind it/],
      [["devices", "offload"], 2, /offload: expected the stable id of an owner behind it/],
      [["ls", "--url", "http://127.0.0.1:9"], 1, /no master answers at http:\/\/127\.0\.0\.1:9: .*--url or SVC_STORE_URL/],
      [["get", "k", "--master", "127.0.0.1:9"], 1, /the store's master at 127\.0\.0\.1:9: connect ECONNREFUSED/],
      [["ls", "--master", "127.0.0.1:9"], 2, /--url: expected http:\/\/HOST:PORT, the HTTP of the master at 127\.0\.0\.1:9 \(its --listen\), got nothing/],
      [["get", "k", "--url", "http://127.0.0.1:9"], 2, /--master: expected HOST:PORT, the RPC of the master at http:\/\/127\.0\.0\.1:9 .*got nothing/],
      [["migrations", "--master", "127.0.0.1:9"], 2, /--admin: expected http:\/\/HOST:PORT, the admin server of the store at 127\.0\.0\.1:9, got nothing/],
      [["undrain"], 2, /expected SEGMENT\.\.\.; svc store segments lists them/],
      [["get", "k", "--master", "a b"], 2, /expected HOST:PORT, got "a b"/],
    ] as const) {
      const outcome = await runStore(home, args);
      assert.equal(outcome.code, code, `${args}: ${outcome.stderr}`);
      assert.match(outcome.stderr, says);
      assert.equal(outcome.stdout.length, 0);
    }
  } finally {
    removeHome(home);
  }
});

void test("a master that is named by its RPC alone is never inspected over another store's HTTP", async () => {
  await using master = await startMaster();
  await using other = await startMaster();
  const rpc = `localhost:${master.rpcPort}`;
  // The home records which HTTP belongs to this master; from another home it cannot be derived.
  const own = await runStore(master.home, ["summary", "--master", rpc, "--output", "json"]);
  assert.equal(own.code, 0, own.stderr);
  assert.equal((JSON.parse(own.stdout.toString()) as { url: string }).url, master.url);
  const elsewhere = await runStore(other.home, ["summary", "--master", rpc, "--output", "json"]);
  assert.deepEqual([elsewhere.code, elsewhere.stdout.length], [2, 0]);
  assert.match(elsewhere.stderr, /--url: expected http:\/\/HOST:PORT/);
  assert.equal((await runStore(other.home, ["summary", "--master", rpc, "--url", `${master.url}/`])).code, 0);
});

void test("the help of a verb shows that verb's forms and every flag of it, and no other verb's", async () => {
  for (const [name, { flags }] of Object.entries(verbs)) {
    const page = helpOf(name);
    const forms = page.split("\n").filter((line) => /^(Usage:| {6}) svc store /.test(line));
    assert.ok(forms.length > 0 && forms.every((line) => line.includes(` svc store ${name} `)), page);
    assert.match(page, new RegExp(`\nExamples:\n  svc store ${name}\\b`), "an example that runs");
    for (const flag of Object.keys(flags)) assert.ok(page.includes(`--${flag}`), `${name} --${flag}`);
    assert.ok(helpOf(undefined).includes(`\n  ${name}`), name);
  }
  const home = makeHome();
  const { code, stdout } = await runStore(home, ["put", "--help"]);
  removeHome(home);
  assert.deepEqual([code, stdout.toString()], [0, helpOf("put")]);
});

void test("a pattern that is not a regular expression is refused with the pattern", async () => {
  await using master = await startMaster();
  const { code, stderr } = await runStore(master.home, ["rm", "--match", "["]);
  assert.deepEqual([code, /--match: expected a regular expression .*got "\["; quote it/.test(stderr)], [2, true], stderr);
});

void test("a key whose holder has not come back since the master's restart is reported as waiting for it", async () => {
  await using master = await startMaster({ flags: ["--client_ttl=300s"] });
  await using service = await startService({ master: master.rpcPort, flags: ["--global_segment_size=16mb"] });
  assert.equal((await runStore(master.home, ["put", "k"], "value")).code, 0);
  await service.kill();
  await master.kill();
  await master.start();
  for (const verb of ["get", "stat"]) {
    const { code, stderr } = await runStore(master.home, [verb, "k"]);
    assert.equal(code, 1);
    assert.match(stderr, /key k cannot be read yet: its holder is not back yet since the master's restart; try again in a few seconds/);
  }
  await using client = await openClient(master);
  assert.equal((await client.whyMissing("k")).reason, "holder_away", "lost would say that it never comes back");
});

void test("the master never reports a command that ended in order as lost, and reports a client that was killed", async () => {
  await using master = await startMaster({ flags: ["--client_ttl=5s", "--store.suspect_after_ms=4000"] });
  for (let at = 0; at < 3; at++) assert.equal((await runStore(master.home, ["get", "never"])).code, 1);
  await using member = await startMember({ master: `127.0.0.1:${master.rpcPort}` });
  await member.kill();
  // The killed client ends after the commands, which would have been reported before it.
  await until("the killed client is missed", () => (master.log().includes("a client is lost") ? true : undefined));
  assert.equal(master.log().match(/a client is (silent|lost)/g)?.length, 2, master.log());
});
