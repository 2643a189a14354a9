// The guides: what they tell people to type works, from a home of its own.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readdirSync } from "node:fs";
import { createServer } from "node:net";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { scriptOf } from "../src/documents.ts";
import { makeHome, removeHome } from "../src/home.ts";
import { needs } from "../src/needs.ts";
import { destroyAll } from "../src/node.ts";

const BOUND_MS = 300_000;
const root = fileURLToPath(new URL("../../..", import.meta.url));

for (const name of readdirSync(`${root}/docs`).filter((file) => file.endsWith(".md"))) {
  const script = scriptOf(`${root}/docs/${name}`);
  if (script === undefined) continue;
  void test(`the commands of docs/${name} work as they stand`, needs("root", "runsc", "envd", "base", "python-clients", "curl"), async () => {
    const home = makeHome();
    const port = await freePort();
    const env = {
      ...process.env,
      SVC_HOME: home,
      SVC_NODE_LISTEN: `127.0.0.1:${port}`,
      SVC_URL: `http://127.0.0.1:${port}`,
      // `up` runs these, too; the guides' own commands for them say their ports.
      SVC_METADATA_LISTEN: "127.0.0.1:0",
      SVC_INDEXER_LISTEN: "127.0.0.1:0",
      PYTHONPATH: process.env["SVC_PYTHON_CLIENTS"],
    };
    try {
      const { code, said } = await run(["bash", "-c", script], env);
      assert.equal(code, 0, said);
      if (name === "quickstart.md") assert.match(said, /^42$/m);
    } finally {
      await run([`${root}/svc`, "down"], env);
      await destroyAll(home);
      removeHome(home);
    }
  });
}

function run(argv: readonly string[], env: NodeJS.ProcessEnv): Promise<{ code: number | null; said: string }> {
  const child = spawn(argv[0] ?? "", argv.slice(1), { cwd: root, env, stdio: ["ignore", "pipe", "pipe"], timeout: BOUND_MS });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk: Buffer) => void (said += chunk.toString()));
  return new Promise((resolve) => child.once("exit", (code) => resolve({ code, said })));
}

/** The commands under test take no port 0: they name it twice. */
function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => resolve(typeof address === "object" && address !== null ? address.port : 0));
    });
  });
}
