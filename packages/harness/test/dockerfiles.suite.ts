// Dockerfiles as people write them, built by `svc template build` from images of a local registry, and looked at in a sandbox.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Sandbox } from "e2b";
import { type Example, examples } from "../src/dockerfiles.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { startRegistry } from "../src/registry.ts";
import { connectionTo, contextFolder } from "../src/template.ts";

const svc = fileURLToPath(new URL("../../cli/src/main.ts", import.meta.url));
const BOUND_MS = 600_000;

function run(node: TestNode, words: readonly string[], cwd: string): Promise<{ code: number | null; said: string }> {
  const env = { ...process.env, SVC_URL: node.url, SDK_API_KEY: node.apiKey, HOME: node.home, SVC_TEST_SECRET: "s3cr3t-of-a-variable" };
  const child = spawn(process.execPath, [svc, ...words], { cwd, env, stdio: ["ignore", "pipe", "pipe"], timeout: BOUND_MS });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk: Buffer) => void (said += chunk.toString()));
  return new Promise((resolve) => child.once("close", (code) => resolve({ code, said })));
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
    registry.push({ name: "tiny:latest", env: { PATH: "/usr/local/bin:/bin" } });
    registry.push({ name: "tools:latest", files: { "opt/tools/abc": "a", "opt/tools/xyz": "x" } });
    for (const example of examples.filter(chosen)) {
      void test(example.name, async () => {
        using context = contextFolder({ ...example.files, Dockerfile: example.dockerfile });
        if (example.files?.["bundle.tar"] !== undefined) {
          context.write("inside.txt", "inside\n");
          execFileSync("tar", ["-C", context.path, "-cf", join(context.path, "bundle.tar"), "inside.txt"]);
        }
        const { code, said } = await run(node, ["template", "build", ".", "-n", example.name, ...(example.flags ?? [])], context.path);
        assert.equal(code, 0, said);
        assert.ok(!/s3cr3t-(in|of)-a/.test(said), "no secret is in what the build says");
        const sandbox = await Sandbox.create(example.name, { ...connectionTo(node), timeoutMs: 300_000 });
        try {
          assert.equal((await sandbox.commands.run(example.command)).stdout, example.shows);
        } finally {
          await sandbox.kill();
        }
      });
    }
    void test("a step that fails, in any stage, is named with its command", async () => {
      using context = contextFolder({ Dockerfile: "FROM tiny AS one\nRUN true\nFROM tiny\nCOPY --from=one /nowhere /x\n" });
      const missing = await run(node, ["template", "build", ".", "-n", "missing"], context.path);
      assert.equal(missing.code, 1);
      assert.match(missing.said, /COPY \/nowhere \/x: nothing matches nowhere/);
      context.write("Dockerfile", "FROM tiny\nRUN --mount=type=secret,id=token,required true\n");
      const secret = await run(node, ["template", "build", ".", "-n", "secretless"], context.path);
      assert.equal(secret.code, 1);
      assert.match(secret.said, /requires the build secret 'token', which was not given/);
    });
  });
}
