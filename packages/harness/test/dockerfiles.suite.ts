// Dockerfiles as people write them, built from images of a local registry by `svc template build` and by requests, and looked at in a sandbox.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Sandbox } from "e2b";
import { type Example, examples } from "../src/dockerfiles.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { type Registry, startRegistry } from "../src/registry.ts";
import { connectionTo, contextFolder, ended, type Folder, startBuild } from "../src/template.ts";

const svc = fileURLToPath(new URL("../../cli/src/main.ts", import.meta.url));
const BOUND_MS = 600_000;

/** The variable that a build secret is taken from. */
export const secretEnv = { SVC_TEST_SECRET: "s3cr3t-of-a-variable" };

export function buildTemplate(node: TestNode, context: Folder, name: string, flags: readonly string[] = []): Promise<{ code: number | null; said: string }> {
  return run(node, ["template", "build", ".", "-n", name, ...flags], context.path);
}

function run(node: TestNode, words: readonly string[], cwd: string): Promise<{ code: number | null; said: string }> {
  const env = { ...process.env, SVC_URL: node.url, SDK_API_KEY: node.apiKey, HOME: node.home, ...secretEnv };
  const child = spawn(process.execPath, [svc, ...words], { cwd, env, stdio: ["ignore", "pipe", "pipe"], timeout: BOUND_MS });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk: Buffer) => void (said += chunk.toString()));
  return new Promise((resolve) => child.once("close", (code) => resolve({ code, said })));
}

async function assertShows(node: TestNode, name: string, { command, shows }: Pick<Example, "command" | "shows">): Promise<void> {
  const sandbox = await Sandbox.create(name, { ...connectionTo(node), timeoutMs: BOUND_MS });
  try {
    assert.equal((await sandbox.commands.run(command)).stdout, shows);
  } finally {
    await sandbox.kill();
  }
}

/** The images that the Dockerfiles name. */
export function pushImages(registry: Registry, below = ""): void {
  registry.push({ name: `${below}tiny:latest`, env: { PATH: "/usr/local/bin:/bin" } });
  registry.push({ name: `${below}tools:latest`, files: { "opt/tools/abc": "a", "opt/tools/xyz": "x" } });
}

/** Makes the archive that an ADD unpacks. */
export function archiveIn(context: Folder): void {
  context.write("inside.txt", "inside\n");
  execFileSync("tar", ["-C", context.path, "-cf", join(context.path, "bundle.tar"), "inside.txt"]);
}

export function dockerfileSuite(chosen: (example: Example) => boolean): void {
  const all = needs("root", "runc", "envd", "base", "skopeo", "umoci", "docker-registry", "busybox");
  void describe("a Dockerfile builds to what it says", all, async () => {
    const registry = await startRegistry();
    const node = await startNode({
      runtime: "runc",
      flags: [`--template.insecure_registries=${registry.host}`, `--template.registry=${registry.host}`],
    });
    after(async () => {
      await node[Symbol.asyncDispose]();
      await registry[Symbol.asyncDispose]();
    });
    pushImages(registry);
    for (const example of examples.filter(chosen)) {
      void test(example.name, async () => {
        using context = contextFolder({ ...example.files, Dockerfile: example.dockerfile });
        if (example.files?.["bundle.tar"] !== undefined) archiveIn(context);
        const { code, said } = await buildTemplate(node, context, example.name, example.flags);
        assert.equal(code, 0, said);
        assert.ok(!/s3cr3t-(in|of)-a/.test(said), "no secret is in what the build says");
        await assertShows(node, example.name, example);
      });
    }
    void test("the template API takes stages, files of other stages and images, owners and build secrets as steps", async () => {
      const confidential = "s3cr3t-in-a-request";
      const asked = await startBuild(node, "by-requests", {
        fromImage: "tiny",
        dockerfile: true,
        steps: [
          { type: "RUN", args: ["mkdir /made && echo first > /made/file && chmod 604 /made/file"] },
          { type: "FROM", args: ["stage:0"] },
          { type: "RUN", args: ["echo second >> /made/file"] },
          { type: "FROM", args: ["tiny"] },
          { type: "ENV", args: ["LEVEL", "last"] },
          { type: "COPY", args: ["/made/file", "/kept/", "7:8"], from: "stage:1" },
          { type: "COPY", args: ["/opt/tools", "/tools/"], from: "tools" },
          { type: "RUN", args: ['wc -c < /run/secrets/token > /length; echo "$LEVEL" >> /length'], secrets: [{ id: "token", required: true }] },
        ],
        secrets: { token: confidential },
        startCmd: "touch /tmp/started; sleep 3600",
        readyCmd: "test -e /tmp/started",
      });
      const { status, logs, reason } = await ended(node, asked);
      assert.equal(status, "ready", reason?.message);
      assert.ok(!JSON.stringify(logs).includes(confidential), "no secret is in what the build says");
      await assertShows(node, "by-requests", {
        command:
          "cat /kept/file; stat -c '%u:%g %a' /kept/file; ls /made /run/secrets/token 2>&1 | grep -c 'No such'; ls /tools /tmp/started; tr -d ' ' < /length",
        shows: `first\nsecond\n7:8 604\n2\n/tmp/started\n\n/tools:\nabc\nxyz\n${confidential.length}\nlast\n`,
      });
    });
    void test("a step that fails, in any stage, is named with its command", async () => {
      using context = contextFolder({ Dockerfile: "FROM tiny AS one\nRUN true\nFROM tiny\nCOPY --from=one /nowhere /x\n" });
      const missing = await buildTemplate(node, context, "missing");
      assert.equal(missing.code, 1);
      assert.match(missing.said, /COPY \/nowhere \/x: nothing matches nowhere/);
      context.write("Dockerfile", "FROM tiny\nRUN --mount=type=secret,id=token,required true\n");
      const secret = await buildTemplate(node, context, "secretless");
      assert.equal(secret.code, 1);
      assert.match(secret.said, /requires the build secret 'token', which was not given/);
    });
  });
}
