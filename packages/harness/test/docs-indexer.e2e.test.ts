// The cache indexer's guide: its commands work unchanged, except for free ports and a separate home.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { scriptOf } from "../src/documents.ts";
import { makeHome, removeHome } from "../src/home.ts";
import { needs } from "../src/needs.ts";
import { freePorts } from "../src/ports.ts";

const BOUND_MS = 300_000;
const root = fileURLToPath(new URL("../../..", import.meta.url));

/** The output of the commands, in the order of the guide. */
const promised = [
  /"status":"ok"/,
  /registered as engine-a/,
  /^engine-a +default +0 +tcp:/m,
  // First the command-line query, then the router, twice.
  /^engine-a +16 +16 +0 +0 /m,
  /^engine-a: 32 tokens are there$/m,
  /^engine-b: 0 tokens are there$/m,
  /"status":"registered successfully","instance_id":"engine-7"/,
  /"removed_instances":\["engine-7\|default\|0"\]/,
  /"engine-a":\{"longest_matched":16,"GPU":16,"CPU":0,"DISK":0,"DP":\{"0":16\}\}/,
  // The same query by hash.
  /"engine-a":\{"longest_matched":32,"GPU":32,"CPU":0,"DISK":0,"DP":\{"0":32\}\}/,
  // The raw answer, with freshness.
  /"engine-a":\{"longest_matched":32,.*"last_sequence":0,/,
  /"results":\[\{"default":\{"engine-a":.*"reason":"missing","field":"block_size"/,
  /the whole prompt's complete blocks are there/,
  // The scores of both.
  /"engine-a":\{"score":0\.000125,"state":"live","matched_tokens":16,.*"engine-b":\{"score":0\.127125,/,
  /"seq_hash":"\d+"/,
  /svc_indexer_blocks \d+$/m,
  /"reason":"out_of_range","field":"token_ids","index":1/,
];

void test("the commands of docs/indexer.md work unchanged, including the example router", needs("curl", "python3", "root"), async () => {
  const home = makeHome();
  try {
    const [http = 0, publish = 0, replay = 0] = await freePorts(3);
    const guide = join(home, "indexer.md");
    const text = readFileSync(join(root, "docs/indexer.md"), "utf8");
    // The guide uses the default ports; the test replaces them.
    const moved = text
      .replaceAll("localhost:13333", `127.0.0.1:${http}`)
      .replaceAll(/\b5557\b/g, String(publish))
      .replaceAll(/\b5558\b/g, String(replay));
    writeFileSync(guide, `<!-- tested -->\n${moved}`);
    const script = scriptOf(guide);
    assert.ok(script !== undefined);
    const env = { ...process.env, SVC_HOME: home, SVC_INDEXER_LISTEN: `127.0.0.1:${http}`, SVC_INDEXER_URL: `http://127.0.0.1:${http}` };
    const { code, said } = await run(script, env);
    assert.equal(code, 0, said);
    let at = 0;
    for (const pattern of promised) {
      const found = said.slice(at).search(pattern);
      assert.ok(found >= 0, `${pattern} was not said after:\n${said.slice(0, at).slice(-500)}\nbut:\n${said.slice(at, at + 3000)}`);
      at += found + 1;
    }
  } finally {
    removeHome(home);
  }
});

/** Runs the script in its own process group, so that its background processes end with it. */
function run(script: string, env: NodeJS.ProcessEnv): Promise<{ code: number | null; said: string }> {
  const child = spawn("bash", ["-c", script], { cwd: root, env, stdio: ["ignore", "pipe", "pipe"], detached: true });
  const end = (): void => {
    try {
      process.kill(-(child.pid ?? 0), "SIGKILL");
    } catch {
      // The group was already empty.
    }
  };
  process.once("exit", end);
  const timer = setTimeout(end, BOUND_MS);
  let said = "";
  child.stdout.on("data", (chunk: Buffer) => void (said += chunk.toString()));
  let traced = "";
  child.stderr.on("data", (chunk: Buffer) => void (traced = (traced + chunk.toString()).slice(-4000)));
  return new Promise((resolve) =>
    child.once("close", (code) => {
      clearTimeout(timer);
      process.off("exit", end);
      end();
      resolve({ code, said: code === 0 ? said : `${said}\n${traced}` });
    }),
  );
}
