// The Dockerfiles of src/dockerfiles.ts as E2B's SDKs translate them by themselves: docs/templates.md says what each does with which instruction.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Sandbox, Template } from "e2b";
import { examples } from "../src/dockerfiles.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { runPython } from "../src/python.ts";
import { type Registry, startRegistry } from "../src/registry.ts";
import { connectionTo, contextFolder, type Folder } from "../src/template.ts";
import { archiveIn, pushImages } from "./dockerfiles.suite.ts";

type Outcome = { readonly shows: string } | { readonly refused: string };

const stages = /[Mm]ulti-stage/;
const unresolved = /fromImage: expected .* got '\$\{NAME\}:\$\{TAG\}'/;
/** How the outcome differs from the Dockerfile, in what a sandbox shows or in the refusal; with any other example a sandbox shows what it should. */
const differences: Readonly<Record<"JavaScript" | "Python", Readonly<Record<string, RegExp>>>> = {
  JavaScript: {
    "multi-stage": stages,
    "stage-on-stage": stages,
    "numbered-stage": stages,
    target: stages,
    "task-of-an-evaluation": stages,
    "from-image": /absolute paths are not allowed/,
    // The SDK drops the text of here-documents, and backslashes.
    "heredoc-script": /^$/,
    "heredoc-shebang": /exit status 1/,
    "heredoc-into-command": /exit code 1/,
    "heredoc-copy": /absolute paths are not allowed/,
    "users-and-owners": /unknown user\/group app:crew/,
    args: unresolved,
    shell: /exit code 1/,
    // The start command is CMD alone, without ENTRYPOINT.
    "entrypoint-and-cmd": /start command ended with exit code 127: with arguments/,
    dockerignore: /node_modules\/x\/index\.js/,
    "build-secret": /exit code 1/,
    "add-archive": /^plain\n1\n$/,
    "patterns-and-links": /No files found/,
    "comments-and-continuations": /1\|"two\|'single/,
  },
  Python: {
    "multi-stage": stages,
    "stage-on-stage": stages,
    "numbered-stage": stages,
    target: stages,
    "task-of-an-evaluation": stages,
    "from-image": stages,
    // The SDK takes no build arguments.
    "heredoc-copy": /hello world/,
    args: unresolved,
    shell: /exit code 1/,
    "build-secret": /exit code 1/,
    "add-archive": /^plain\n1\n$/,
    // Single quotes are lost, so the server expands the variable in them.
    "comments-and-continuations": /1\|two words\|single 1/,
  },
};

void describe("E2B's SDKs translate Dockerfiles by themselves", needs("root", "runc", "envd", "base", "skopeo", "umoci", "docker-registry", "busybox"), () => {
  let registry: Registry;
  let node: TestNode;
  const contexts: Folder[] = [];
  before(async () => {
    registry = await startRegistry();
    node = await startNode({
      runtime: "runc",
      flags: [`--template.insecure_registries=${registry.host}`, `--template.registry=${registry.host}`],
    });
    pushImages(registry);
    for (const { files, dockerfile } of examples) {
      const context = contextFolder({ ...files, Dockerfile: dockerfile });
      if (files?.["bundle.tar"] !== undefined) archiveIn(context);
      contexts.push(context);
    }
  });
  after(async () => {
    for (const context of contexts) context[Symbol.dispose]();
    await node?.[Symbol.asyncDispose]();
    await registry?.[Symbol.asyncDispose]();
  });

  function assertOutcomes(sdk: keyof typeof differences, outcomes: readonly Outcome[]): void {
    for (const [at, { name, shows }] of examples.entries()) {
      const outcome = outcomes[at];
      assert.ok(outcome !== undefined, name);
      const difference = differences[sdk][name];
      if (difference === undefined) assert.deepEqual([name, outcome], [name, { shows }]);
      else {
        const said = "shows" in outcome ? outcome.shows : outcome.refused;
        assert.match(said, difference, `${name}: ${said}`);
        assert.notEqual(said, shows, `${name} is translated as written by now: say so in docs/templates.md`);
      }
    }
  }

  void test("the JavaScript SDK builds what it takes of a Dockerfile", async () => {
    const outcomes: Outcome[] = [];
    for (const [at, { name, dockerfile, command }] of examples.entries()) {
      outcomes.push(await shown(`js-${name}`, contexts[at]?.path ?? "", dockerfile, command).catch((error: unknown) => ({ refused: String(error) })));
    }
    assertOutcomes("JavaScript", outcomes);
  });

  async function shown(name: string, fileContextPath: string, dockerfile: string, command: string): Promise<Outcome> {
    await Template.build(Template({ fileContextPath }).fromDockerfile(dockerfile), name, connectionTo(node));
    const sandbox = await Sandbox.create(name, { ...connectionTo(node), timeoutMs: 600_000 });
    try {
      return { shows: (await sandbox.commands.run(command)).stdout };
    } finally {
      await sandbox.kill();
    }
  }

  void test("the Python SDK builds what it takes of a Dockerfile", async () => {
    using folder = contextFolder();
    const list = join(folder.path, "dockerfiles.json");
    writeFileSync(list, JSON.stringify(examples.map((each, at) => ({ ...each, name: `py-${each.name}`, context: contexts[at]?.path }))));
    process.env["SVC_TEST_DOCKERFILES"] = list;
    const { code, said } = await runPython(node, new URL("dockerfiles_sdk.py", import.meta.url));
    assert.equal(code, 0, said);
    assertOutcomes("Python", JSON.parse(said.trim().split("\n").at(-1) ?? "") as Outcome[]);
  });

  void test("a variable whose quoted value the SDK cut is refused with another way to give it", async () => {
    const template = Template().fromDockerfile('FROM tiny\nENV NAME="two words"\n');
    await assert.rejects(Template.build(template, "cut", connectionTo(node)), /\(ENV\): 'NAME="two' is not the name of a variable; .* svc template build/s);
  });
});
