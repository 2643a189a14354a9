// The tree's npm packages are installed next to the existing ones, so that running programs never lose theirs.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { SetupTree } from "./setup-tree.ts";

/** A registry with one package, `left` 1.2.4, which delays requests until it is released. */
async function openRegistry(folder: string) {
  mkdirSync(join(folder, "package"));
  writeFileSync(join(folder, "package/package.json"), '{\n  "name": "left",\n  "version": "1.2.4"\n}\n');
  execFileSync("tar", ["-C", folder, "-czf", join(folder, "left.tgz"), "package"]);
  const archive = readFileSync(join(folder, "left.tgz"));
  const { promise: asked, resolve: onAsked } = Promise.withResolvers<void>();
  const { promise: open, resolve: letGo } = Promise.withResolvers<void>();
  const server = createServer(async (_request, response) => {
    onAsked();
    await open;
    response.end(archive);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    integrity: `sha512-${createHash("sha512").update(archive).digest("base64")}`,
    asked,
    letGo,
    [Symbol.dispose]() {
      server.closeAllConnections();
      server.close();
    },
  };
}

void test("an npm install that hangs or is killed leaves the modules unchanged, and the next one replaces them completely", async () => {
  using tree = new SetupTree();
  using registry = await openRegistry(tree.folder);
  const modules = join(tree.tree, "node_modules");
  const version = () => (JSON.parse(readFileSync(join(modules, "left/package.json"), "utf8")) as { version: string }).version;
  mkdirSync(join(modules, "left"), { recursive: true });
  writeFileSync(join(modules, "left/package.json"), '{ "name": "left", "version": "1.2.3" }');
  writeFileSync(join(tree.tree, "package.json"), '{ "name": "tree", "private": true, "dependencies": { "left": "1.2.4" } }');
  const packages = {
    "": { name: "tree", dependencies: { left: "1.2.4" } },
    "node_modules/left": { version: "1.2.4", resolved: `${registry.url}left/-/left-1.2.4.tgz`, integrity: registry.integrity },
  };
  const lock = JSON.stringify({ name: "tree", lockfileVersion: 3, requires: true, packages }, undefined, 2);
  writeFileSync(join(tree.tree, "package-lock.json"), lock);

  const env = { SVC_NODE: process.execPath, npm_config_registry: registry.url, NO_PROXY: "127.0.0.1", no_proxy: "127.0.0.1" };
  const first = tree.start(["setup", "--only", "npm"], env);
  await Promise.race([registry.asked, first.done.then(({ stderr }) => assert.fail(stderr))]);
  assert.equal(version(), "1.2.3", "while npm works");
  for (let quietLooks = 0; quietLooks < 3; await delay(10)) quietLooks = tree.killAll() === 0 ? quietLooks + 1 : 0;
  await first.done;
  assert.equal(version(), "1.2.3", "after the kill");

  registry.letGo();
  const { code, stderr } = await tree.run(["setup", "--only", "npm"], env);
  assert.equal(code, 0, `${stderr}${readFileSync(join(tree.cache, "logs/npm.log"), "utf8")}`);
  assert.equal(version(), "1.2.4");
  assert.equal(existsSync(join(tree.tree, ".making-node_modules")), false);
  assert.equal(readFileSync(join(tree.tree, "package-lock.json"), "utf8"), lock);
});

void test("a kill between the two renames of an npm install is completed by the next run, without a registry", async () => {
  using tree = new SetupTree();
  const making = join(tree.tree, ".making-node_modules");
  for (const [folder, version] of [
    ["old/node_modules", "1.2.3"],
    ["node_modules", "1.2.4"],
  ] as const) {
    mkdirSync(join(making, folder, "left"), { recursive: true });
    writeFileSync(join(making, folder, "left/package.json"), `{\n  "name": "left",\n  "version": "${version}"\n}\n`);
    writeFileSync(join(making, folder, ".package-lock.json"), "{}");
  }
  writeFileSync(join(tree.tree, "package-lock.json"), '{\n  "packages": {\n    "node_modules/left": {\n      "version": "1.2.4"\n    }\n  }\n}\n');
  const { code, stderr } = await tree.run(["setup", "--only", "npm"], { SVC_NODE: process.execPath, npm_config_registry: "http://127.0.0.1:9/" });
  assert.equal(code, 0, stderr);
  assert.match(readFileSync(join(tree.tree, "node_modules/left/package.json"), "utf8"), /1\.2\.4/);
});
