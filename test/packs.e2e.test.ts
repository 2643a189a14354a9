// Installs the npm packs and the Python wheel as their users do, into an empty folder, and runs them with types against real servers.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { startNode } from "@svc/harness/node.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { endProcess, openServer, startProcess } from "@svc/harness/server-process.ts";
import { buildPacks } from "../setup/release/packs.ts";
import { buildPythonClient } from "../setup/release/python-client.ts";

const run = promisify(execFile);
const root = join(import.meta.dirname, "..");
const INSTALL_MS = 300_000;

const userOfSandboxes = `
import { SvcClient } from "@svc/contract";
import { Failure } from "@svc/contract/failures";
import { IndexClient, openHasher } from "@svc/contract/indexer";
const client = new SvcClient({ baseURL: process.env["NODE_URL"] ?? "", apiKey: process.env["API_KEY"] });
const sandbox = await client.create({ templateID: "host", timeout: 600 });
let said = "";
for await (const event of client.envd(sandbox).start({ cmd: "echo", args: ["42"], stdin: false })) {
  if (event.type === "stdout") said += Buffer.from(event.data).toString();
}
await client.delete(sandbox.sandboxID);
const refused = await client.get(sandbox.sandboxID).then(() => "found", (error: unknown) => (error instanceof Failure ? error.name : "another error"));
const index = new IndexClient(process.env["INDEXER_URL"] ?? "");
const hashes = (await openHasher())(new Uint32Array(64), 16);
const answer = await index.queryByHash(hashes, { model: "m", blockSize: 16 });
console.log(JSON.stringify({ said, refused, blocks: hashes.length, answer: typeof answer }));
`;

const userOfTheStore = `
import { StoreClient } from "@svc/store-client";
await using client = await StoreClient.open({ master: process.env["MASTER"] ?? "", segmentBytes: 64 << 20 });
const stored: boolean = await client.put("key", Buffer.from("value"));
console.log(JSON.stringify({ stored, value: (await client.get("key"))?.toString(), none: (await client.get("nothing")) === undefined }));
`;

/** The programs of a guide in one language, with the addresses of this test's servers in place of the default ones. */
async function programsOf(page: string, language: "ts" | "python", servers: Readonly<Record<string, string>>): Promise<string[]> {
  const blocks = [...(await readFile(join(root, page), "utf8")).matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)];
  const texts = blocks.flatMap(([, name, code = ""]) => (name === language ? [code] : []));
  return texts.map((text) => Object.entries(servers).reduce((program, [from, to]) => program.replaceAll(from, to), text));
}

/** The output of each program of docs/clients.md. */
const GUIDE_SAYS = { typescript: ["3 data.txt\nSANDBOX_NOT_FOUND\n", "4 object\n", "value\n"], python: "3\nSANDBOX_NOT_FOUND\ndict\nvalue\n" };

const compilerOptions = { module: "NodeNext", target: "ES2024", lib: ["ES2024", "ESNext.Disposable"], types: ["node"], strict: true, skipLibCheck: false };

void test("each npm pack installs into an empty folder, has types, and works against real servers", async () => {
  const folder = await mkdtemp(join(tmpdir(), "svc-packs-"));
  await using undo = new AsyncDisposableStack();
  undo.defer(() => rm(folder, { recursive: true, force: true }));
  const archives = await buildPacks(join(folder, "packs"));
  await writeFile(join(folder, "package.json"), JSON.stringify({ name: "user", private: true, type: "module" }));
  await run("npm", ["install", "--no-audit", "--no-fund", "--prefer-offline", ...archives], { cwd: folder, timeout: INSTALL_MS });
  // The user's compiler and Node types are those of the tree; the packs bring neither.
  await symlink(join(root, "node_modules/@types"), join(folder, "node_modules/@types"));
  await symlink(join(root, "node_modules/undici-types"), join(folder, "node_modules/undici-types"));
  await writeFile(join(folder, "sandboxes.mts"), userOfSandboxes);
  await writeFile(join(folder, "store.mts"), userOfTheStore);
  const [rpcPort = 0] = await freePorts(1);
  const home = (name: string) => `--home=${join(folder, name)}`;
  const node = undo.use(await startNode());
  const indexer = undo.use(await openServer([join(root, "packages/indexer/src/main.ts")], [home("indexer")]));
  undo.use(await openServer([join(root, "packages/store/src/master/main.ts")], [home("master"), `--rpc_port=${rpcPort}`, "--rpc_address=127.0.0.1"]));
  const servers = { "http://localhost:8000": node.url, "http://localhost:13333": indexer.url, "127.0.0.1:50051": `127.0.0.1:${rpcPort}` };
  const guide = await programsOf("docs/clients.md", "ts", servers);
  for (const [at, program] of guide.entries()) await writeFile(join(folder, `guide-${at}.mts`), program);
  await writeFile(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions: { ...compilerOptions, noEmit: true }, include: ["*.mts"] }));
  const checked = await run(join(root, "node_modules/.bin/tsc"), ["-p", "."], { cwd: folder }).catch((error: { stdout: string }) => error);
  assert.equal(checked.stdout, "", "the types of the packs are whole");

  const as = async (script: string, env: Record<string, string>) => {
    const { stdout } = await run(process.execPath, ["--disable-warning=ExperimentalWarning", script], { cwd: folder, env: { ...process.env, ...env } });
    return stdout;
  };
  const says = [];
  for (const at of guide.keys()) says.push(await as(`guide-${at}.mts`, { SDK_API_KEY: node.apiKey }));
  assert.deepEqual(says, GUIDE_SAYS.typescript);
  assert.deepEqual(JSON.parse(await as("sandboxes.mts", { NODE_URL: node.url, API_KEY: node.apiKey, INDEXER_URL: indexer.url })), {
    said: "42\n",
    refused: "SANDBOX_NOT_FOUND",
    blocks: 4,
    answer: "object",
  });
  assert.deepEqual(JSON.parse(await as("store.mts", { MASTER: `127.0.0.1:${rpcPort}` })), { stored: true, value: "value", none: true });
});

const pythonUser = `
import asyncio, json, os
from svc_client import AsyncSandboxes, Index, Sandboxes, Store, SvcError
url, key = os.environ["NODE_URL"], os.environ["API_KEY"]
with Sandboxes(url, key) as sandboxes:
    sandbox = sandboxes.create_sandbox(template_id="host", timeout=600, metadata={"run": "1"})
    sandboxes.write_file(sandbox, "/tmp/a file", b"bytes")
    result = sandboxes.run(sandbox, "cat '/tmp/a file'; echo error >&2; exit 3")
    found = [each.sandbox_id for each in sandboxes.iter_sandboxes(metadata="run=1")]
    read = sandboxes.read_file(sandbox, "/tmp/a file")
    async def twin():
        async with AsyncSandboxes(url, key) as client:
            said = await client.run(sandbox, "echo 42")
            return said.stdout.decode()
    again = asyncio.run(twin())
    sandboxes.delete_sandbox(sandbox.sandbox_id)
    try:
        sandboxes.get_sandbox(sandbox.sandbox_id)
        refused = "found"
    except SvcError as error:
        refused = f"{error.name} {error.status}"
try:
    Sandboxes("http://127.0.0.1:9", "key").get_health()
    lost = "answered"
except SvcError as error:
    lost = error.name
with Index(os.environ["INDEXER_URL"]) as index:
    answer = index.query(list(range(64)), model="m", block_size=16)
    score = index.score(list(range(64)), model="m", candidates=["nobody"])["default"]["nobody"]["state"]
with Store(os.environ["SERVICE_URL"]) as store:
    store.put("a/key", "value")
    kept = [store.get("a/key").decode(), store.get("nothing"), store.exists("a/key")]
print(json.dumps({"command": [result.exit_code, result.stdout.decode(), result.stderr.decode()], "listed": found == [sandbox.sandbox_id],
    "read": read.decode(), "again": again, "refused": refused, "lost": lost, "answer": isinstance(answer, dict), "score": score, "kept": kept}))
`;

void test("the Python wheel installs into an empty folder and works against real servers", async () => {
  const folder = await mkdtemp(join(tmpdir(), "svc-wheel-"));
  await using undo = new AsyncDisposableStack();
  undo.defer(() => rm(folder, { recursive: true, force: true }));
  const wheel = await buildPythonClient(join(folder, "wheel"));
  await run("python3", ["-m", "pip", "install", "--quiet", "--target", join(folder, "site"), wheel], { timeout: INSTALL_MS });
  const [rpcPort = 0] = await freePorts(1);
  const home = (name: string) => `--home=${join(folder, name)}`;
  const main = (path: string) => [join(root, "packages", path)];
  const node = undo.use(await startNode());
  const indexer = undo.use(await openServer(main("indexer/src/main.ts"), [home("indexer")]));
  undo.use(await openServer(main("store/src/master/main.ts"), [home("master"), `--rpc_port=${rpcPort}`, "--rpc_address=127.0.0.1"]));
  const service = [home("service"), "--host=127.0.0.1", "--port=0", `--master_server_address=127.0.0.1:${rpcPort}`, "--global_segment_size=64mb"];
  const rest = await startProcess(join(root, "packages/store/src/service/main.ts"), service, {}, () => undefined);
  undo.defer(() => endProcess(rest.child, "SIGKILL"));
  await writeFile(join(folder, "user.py"), pythonUser);
  const env = {
    PYTHONPATH: join(folder, "site"),
    NODE_URL: node.url,
    API_KEY: node.apiKey,
    INDEXER_URL: indexer.url,
    SERVICE_URL: `http://127.0.0.1:${rest.port}`,
  };
  const servers = { "http://localhost:8000": node.url, "http://localhost:13333": indexer.url, "http://localhost:8080": env.SERVICE_URL };
  const [program = ""] = await programsOf("docs/clients.md", "python", servers);
  await writeFile(join(folder, "guide.py"), program);
  const guide = await run("python3", [join(folder, "guide.py")], { cwd: folder, env: { ...process.env, ...env, SDK_API_KEY: node.apiKey } });
  assert.equal(guide.stdout, GUIDE_SAYS.python);
  const { stdout } = await run("python3", [join(folder, "user.py")], { cwd: folder, env: { ...process.env, ...env } });
  assert.deepEqual(JSON.parse(stdout), {
    command: [3, "bytes", "error\n"],
    listed: true,
    read: "bytes",
    again: "42\n",
    refused: "SANDBOX_NOT_FOUND 404",
    lost: "SERVER_UNREACHABLE",
    answer: true,
    score: "unregistered",
    kept: ["value", null, true],
  });
});
