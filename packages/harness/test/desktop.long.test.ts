// The template desktop: built on first use through crashes and full disks, and driven by E2B's unmodified desktop SDKs.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Sandbox } from "@e2b/desktop";
import { openBoundedDisk } from "../src/bounded-disk.ts";
import { desktopSdk } from "../src/desktop-sdk.ts";
import { commandsOf } from "../src/documents.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { runPython } from "../src/python.ts";
import { buildSays, buildsOf, recipeBuilt } from "../src/recipe-build.ts";
import { ROOT, runGuide } from "../src/run-guide.ts";
import { connectionTo } from "../src/template.ts";
import { until } from "../src/until.ts";
import { desktopTests } from "./desktop.suite.ts";

/** A create begins another build only a minute after the last one failed. */
const AGAIN_MS = 600_000;

void describe("the template desktop", needs("root", "runsc", "envd", "base", "python3"), () => {
  let node: TestNode;
  before(async () => {
    node = await startNode({ runtime: "gvisor", internet: true });
  });
  after(() => node?.[Symbol.asyncDispose]());

  const refusal = () =>
    Sandbox.create(connectionTo(node)).then(
      () => assert.fail("there is a desktop before it was built"),
      (error: unknown) => String(error),
    );

  void test("after kill -9 of the node during the build, a create says that the build was cut off, and a later one builds it again", async () => {
    const first = refusal();
    await buildSays(node, "desktop", /Unpacking/);
    await node.restart("SIGKILL");
    await first;
    assert.match(await refusal(), /could not be built: the node ended while this build was at step \d+.*try again later/);
    await until("another build", async () => ((await refusal()).includes("is being built") ? true : undefined), 5_000, AGAIN_MS);
    assert.equal((await buildsOf(node, "desktop")).length, 2);
  });

  void test("creates during the build share it, and once it is built each gets a desktop", async () => {
    // A build that is faster than the creates refuses neither.
    const both = await Promise.allSettled([1, 2].map(() => Sandbox.create(connectionTo(node))));
    for (const each of both) {
      if (each.status === "fulfilled") await each.value.kill();
      else assert.match(String(each.reason), /template 'desktop' is being built on its first use/);
    }
    assert.equal((await buildsOf(node, "desktop")).length, 2, "the interrupted one and its successor");
    await recipeBuilt(node, "desktop");
    const sandboxes = await Promise.all([1, 2].map(() => Sandbox.create({ ...connectionTo(node), timeoutMs: 600_000 })));
    const servers = await Promise.all(
      sandboxes.map(async (each) => (await each.commands.run("cat /tmp/.X0-lock; pgrep -x xfce4-session; pgrep -xc Xvfb")).stdout),
    );
    assert.equal(servers[0], servers[1], "both continue the processes of one checkpoint");
    assert.match(servers[0] ?? "", /\n1\n$/, "one X server");
    await Promise.all(sandboxes.map((each) => each.kill()));
  });

  desktopTests(() => node);

  void test("every call of the Python SDK works", async () => {
    const { code, said } = await runPython(node, new URL("desktop_python.py", import.meta.url), desktopSdk());
    assert.equal(code, 0, said);
  });

  void test("the commands of docs/desktop.md about the desktop work", async () => {
    const guide = readFileSync(join(ROOT, "docs/desktop.md"), "utf8");
    // The node of this test has built the template already; the other half is run by the test of the browser.
    const commands = commandsOf(guide.slice(0, guide.indexOf("\n## The browser"))).replace("./svc up -d\n", "");
    const { code, said } = await runGuide(commands, { SVC_URL: node.url, SDK_API_KEY: node.apiKey, PYTHONPATH: desktopSdk() });
    assert.equal(code, 0, said);
  });
});

void test(
  "a disk that is full during the build is named by the create, and the node builds again with space",
  needs("root", "runsc", "envd", "base"),
  async () => {
    const disk = openBoundedDisk(4_096);
    await using node = await startNode({ home: disk.path, runtime: "gvisor", internet: true });
    try {
      const first = Sandbox.create(connectionTo(node)).catch((error: unknown) => String(error));
      await buildSays(node, "desktop", /Unpacking/);
      disk.fill();
      await first;
      const reason = await until(
        "the build fails",
        async () => {
          const [newest] = await buildsOf(node, "desktop");
          return newest?.status === "error" ? true : undefined;
        },
        1_000,
        AGAIN_MS,
      );
      assert.ok(reason);
      assert.match(
        await Sandbox.create(connectionTo(node))
          .catch((error: unknown) => String(error))
          .then(String),
        /disk|space/i,
      );
      disk.free();
      await until(
        "another build",
        async () => {
          const said = await Sandbox.create(connectionTo(node)).catch((error: unknown) => String(error));
          return String(said).includes("is being built") ? true : undefined;
        },
        5_000,
        AGAIN_MS,
      );
    } finally {
      disk.free();
    }
  },
);
