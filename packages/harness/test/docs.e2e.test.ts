// The guides: the commands that they tell people to type work, from a separate home.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { scriptOf } from "../src/documents.ts";
import { makeHome, removeHome } from "../src/home.ts";
import { needs } from "../src/needs.ts";
import { destroyAll } from "../src/node.ts";
import { freePorts } from "../src/ports.ts";

const BOUND_MS = 300_000;
const root = fileURLToPath(new URL("../../..", import.meta.url));

const guides = readdirSync(`${root}/docs`).flatMap((file) => (file.endsWith(".md") ? [`docs/${file}`] : []));
for (const name of ["README.md", ...guides]) {
  const script = scriptOf(`${root}/${name}`);
  if (script === undefined) continue;
  void test(`the commands of ${name} work unchanged`, needs("root", "runsc", "envd", "base", "python-clients", "curl", "etcd"), async () => {
    const home = makeHome();
    const [port = 0] = await freePorts(1);
    const env = {
      ...process.env,
      SVC_HOME: home,
      SVC_NODE_LISTEN: `127.0.0.1:${port}`,
      SVC_URL: `http://127.0.0.1:${port}`,
      // `up` also runs these servers; the guides' own commands for them set their ports.
      SVC_METADATA_LISTEN: "127.0.0.1:0",
      SVC_INDEXER_LISTEN: "127.0.0.1:0",
      SVC_STORE_LISTEN: "127.0.0.1:0",
      SVC_STORE_RPC_ADDRESS: "127.0.0.1",
      SVC_STORE_RPC_PORT: "0",
      SVC_STORE_ADMIN_LISTEN: "127.0.0.1:0",
      SVC_STORE_SERVICE_HOST: "127.0.0.1",
      SVC_STORE_SERVICE_PORT: "0",
      DEPLOY_DIR: join(home, "deploy"),
      DEPLOY_PORT: String(port),
      PYTHONPATH: process.env["SVC_PYTHON_CLIENTS"],
    };
    try {
      const { code, said } = await run(["bash", "-c", script], env);
      assert.equal(code, 0, said);
      if (name === "README.md" || name === "docs/quickstart.md") assert.match(said, /^42$/m);
    } finally {
      await run([`${root}/svc`, "down"], env);
      for (const member of ["gateway", "a", "b", "c"]) await endMember(join(home, "deploy", member));
      await destroyAll(home);
      removeHome(home);
    }
  });
}

/** The guide may have ended the process itself. */
function endProcess(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

/** Ends what a guide about several nodes started and did not end itself. */
async function endMember(home: string): Promise<void> {
  const etcd = join(home, "../etcd.pid");
  if (existsSync(etcd)) {
    endProcess(Number(readFileSync(etcd, "utf8")));
    rmSync(etcd);
  }
  if (!existsSync(join(home, "node.json"))) return;
  endProcess((JSON.parse(readFileSync(join(home, "node.json"), "utf8")) as { pid: number }).pid);
  if (existsSync(join(home, "sandboxes.db"))) await destroyAll(home);
}

function run(argv: readonly string[], env: NodeJS.ProcessEnv): Promise<{ code: number | null; said: string }> {
  const child = spawn(argv[0] ?? "", argv.slice(1), { cwd: root, env, stdio: ["ignore", "pipe", "pipe"], timeout: BOUND_MS });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk: Buffer) => void (said += chunk.toString()));
  return new Promise((resolve) => child.once("exit", (code) => resolve({ code, said })));
}
