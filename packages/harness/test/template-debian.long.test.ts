// Debian roots and packages, from the mirrors that the base template names, through a sandbox's own network.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Sandbox, Template } from "e2b";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";
import { build, connectionTo } from "../src/template.ts";

void test("a template of a Debian suite is built in a sandbox, installs packages, and is cached", needs("root", "runsc", "envd", "base"), async () => {
  await using node = await startNode({ runtime: "gvisor", internet: true });
  const template = () => Template().fromDebianImage("bookworm").aptInstall("hello", { noInstallRecommends: true });
  await build(node, template(), "debian");
  const sandbox = await Sandbox.create("debian", { ...connectionTo(node), timeoutMs: 120_000 });
  const { stdout } = await sandbox.commands.run("hello; . /etc/os-release; echo $VERSION_CODENAME; id -un; sudo id -un");
  await sandbox.kill();
  assert.equal(stdout, "Hello, world!\nbookworm\nuser\nroot\n");
  const { lines } = await build(node, template(), "debian");
  assert.deepEqual(
    lines.filter((line) => line.endsWith("(cached)")).map((line) => line.slice(0, 20)),
    ["FROM debian:bookworm", "[1/1] RUN apt-get up"],
  );
});
