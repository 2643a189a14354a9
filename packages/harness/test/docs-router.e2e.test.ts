// The router's guide: its commands work unchanged, except for free ports and a separate home.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { scriptOf } from "../src/documents.ts";
import { makeHome, removeHome } from "../src/home.ts";
import { needs } from "../src/needs.ts";
import { freePorts } from "../src/ports.ts";
import { ROOT, runGuide } from "../src/run-guide.ts";

/** The output of the commands, in the order of the guide. */
const promised = [
  /engine-a ready at http:\/\/127\.0\.0\.1:|engine-b ready at http:\/\/127\.0\.0\.1:/,
  /svc router ready at/,
  /x-svc-instance: engine-[ab]/,
  /x-svc-expected-cached-tokens: 0/,
  // The second request finds all complete blocks except the last one.
  /x-svc-expected-cached-tokens: (?!0\b)\d+/,
  /data: \[DONE\]/,
  /"engine": "engine-[ab]"/,
  /"state":"live"/,
  /"draining":true/,
  /"because":"it drains"/,
  /"fit":true,.*"draining":false/,
  /svc_router_prediction_error_tokens_count\{direction="equal"\} 2/,
];

void test("the commands of docs/router.md work unchanged", needs("curl"), async () => {
  const home = makeHome();
  try {
    const [indexer = 0, one = 0, other = 0, router = 0] = await freePorts(4);
    const guide = join(home, "router.md");
    const moved = readFileSync(join(ROOT, "docs/router.md"), "utf8")
      .replaceAll("localhost:13333", `127.0.0.1:${indexer}`)
      .replaceAll("localhost:8600", `127.0.0.1:${router}`)
      .replaceAll("localhost:900", "127.0.0.1:900")
      .replaceAll(/\b9001\b/g, String(one))
      .replaceAll(/\b9002\b/g, String(other));
    writeFileSync(guide, `<!-- tested -->\n${moved}`);
    const script = scriptOf(guide);
    assert.ok(script !== undefined);
    const env = { SVC_HOME: home, SVC_INDEXER_LISTEN: `127.0.0.1:${indexer}`, SVC_ROUTER_LISTEN: `127.0.0.1:${router}` };
    const { code, said } = await runGuide(script, env);
    assert.equal(code, 0, said);
    // Bash traces the commands themselves, which is not their output.
    const output = said.replaceAll(/^\++ .*$/gm, "");
    let at = 0;
    for (const pattern of promised) {
      const found = output.slice(at).search(pattern);
      assert.ok(found >= 0, `${pattern} was not said after:\n${output.slice(0, at).slice(-500)}\nbut:\n${output.slice(at, at + 3000)}`);
      at += found + 1;
    }
  } finally {
    removeHome(home);
  }
});
