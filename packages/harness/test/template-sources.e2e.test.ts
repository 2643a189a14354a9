// Templates from snapshots, on drivers without memory checkpoints, and with layers that were damaged on disk.
import assert from "node:assert/strict";
import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createSandbox } from "@svc/contract/sandbox.ts";
import { listTemplates } from "@svc/contract/template.ts";
import { buildTemplate, cancelBuild, requestTemplate } from "@svc/contract/template-build.ts";
import { Sandbox, Template, waitForPort } from "e2b";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { build, connectionTo, ended, startBuild } from "../src/template.ts";

async function output(node: TestNode, template: string, command: string): Promise<string> {
  const sandbox = await Sandbox.create(template, { ...connectionTo(node), timeoutMs: 120_000 });
  try {
    return (await sandbox.commands.run(command)).stdout;
  } finally {
    await sandbox.kill();
  }
}

void test("a template built from a snapshot has its files and none of its processes", needs("root", "runsc", "envd", "base"), async () => {
  await using node = await startNode({ runtime: "gvisor" });
  const source = await Sandbox.create("base", connectionTo(node));
  await source.commands.run("echo snapped > /home/user/file; rm -f /home/user/.profile");
  await source.commands.run("sleep 4245", { background: true });
  const { snapshotId } = await source.createSnapshot();
  await source.kill();
  await build(node, Template().fromTemplate(snapshotId).runCmd("echo more >> /home/user/file"), "from-snapshot");
  assert.equal(await output(node, "from-snapshot", "cat file; ls -A | grep -c '^.profile$'; pgrep -fc 'sleep 424[5]' || true"), "snapped\nmore\n0\n0\n");
});

void test("FROM base in a Dockerfile means the template base, not a registry's image", needs("root", "runsc", "envd", "base"), async () => {
  await using node = await startNode({ runtime: "gvisor" });
  for (const [index, name] of ["base", "base:latest"].entries()) {
    const { lines } = await build(node, Template().fromDockerfile(`FROM ${name}\nRUN echo ${index} > /of-base\n`), `of-base-${index}`);
    assert.ok(
      lines.some((line) => line.includes("the template base")),
      lines.join("\n"),
    );
    assert.equal(await output(node, `of-base-${index}`, "cat /of-base"), `${index}\n`);
  }
});

void test(
  "a build that is refused before it begins is given up without a trace, and a template without a ready build says why",
  needs("root", "runsc", "envd", "base"),
  async () => {
    await using node = await startNode({ runtime: "gvisor" });
    const asked = await node.call(requestTemplate, { name: "never" });
    const refused = node.call(buildTemplate, { ...asked, fromTemplate: "base", steps: [{ type: "BREW", args: ["tea"] }] });
    await assert.rejects(refused, { name: "INVALID_REQUEST" });
    await assert.rejects(node.call(createSandbox, { templateID: "never" }), { name: "TEMPLATE_NOT_FOUND", message: /none was started/ });
    await node.call(cancelBuild, { templateID: asked.templateID, buildID: asked.buildID });
    assert.ok(!(await node.call(listTemplates, {})).some(({ names }) => names.includes("never")));
    const failing = await startBuild(node, "failing", { fromTemplate: "base", steps: [{ type: "RUN", args: ["echo because >&2; false"] }] });
    await ended(node, failing);
    await assert.rejects(node.call(createSandbox, { templateID: "failing" }), {
      name: "TEMPLATE_NOT_FOUND",
      message: /the last one failed: .*svc template logs failing/s,
    });
  },
);

void test("if the driver stores no memory, each sandbox runs the start command itself", needs("root", "runc", "envd", "base"), async () => {
  await using node = await startNode({ runtime: "runc" });
  const template = Template()
    .fromTemplate("base")
    .setEnvs({ NAME: "x y" })
    .setWorkdir("/srv")
    .setStartCmd('echo "$NAME" > /tmp/name; pwd >> /tmp/name; python3 -m http.server 8125', waitForPort(8125));
  const { lines } = await build(node, template, "started");
  assert.ok(
    lines.some((line) => line.includes("each sandbox of this template runs the start command itself")),
    lines.join("\n"),
  );
  assert.equal(await output(node, "started", "cat /tmp/name; curl -s -o /dev/null -w '%{http_code}\n' localhost:8125"), "x y\n/srv\n200\n");
});

void test("a damaged layer is a typed failure that names layer and file, and a new build repairs it", needs("root", "runsc", "envd", "base"), async () => {
  await using node = await startNode({ runtime: "gvisor" });
  const template = () => Template().fromTemplate("base").runCmd("echo whole > /home/user/file");
  await build(node, template(), "damaged");
  const [layerID = ""] = readdirSync(join(node.home, "layers"));
  await node.kill("SIGTERM");
  writeFileSync(join(node.home, "layers", layerID, "diff/home/user/file"), "broke\n");
  await node.start();
  await assert.rejects(
    node.call(createSandbox, { templateID: "damaged" }),
    (error: Error) => error.name === "SNAPSHOT_DAMAGED" && error.message.includes(layerID) && error.message.includes("home/user/file"),
  );
  const { lines } = await build(node, template(), "damaged");
  assert.ok(
    lines.some((line) => line.includes("the step runs anew")),
    lines.join("\n"),
  );
  assert.equal(await output(node, "damaged", "cat file"), "whole\n");
});
