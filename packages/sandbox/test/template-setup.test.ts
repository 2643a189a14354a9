// Templates made by set-up: names, the newest recipe, aliases, half-made ones.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { openSetupTemplates } from "../src/template/setup-templates.ts";

function temporary() {
  const path = mkdtempSync(join(tmpdir(), "svc-templates-"));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}

function put(directory: string, folder: string, name: string, createdAt: string, binds: string[] = []) {
  const place = join(directory, `.new-${folder}`);
  mkdirSync(join(place, "rootfs"), { recursive: true });
  const description = {
    name,
    templateID: folder,
    cpuCount: 2,
    memoryMB: 512,
    diskSizeMB: 1024,
    user: "user",
    workdir: "/home/user",
    env: {},
    createdAt,
    recipe: folder,
    source: "test",
    binds,
  };
  writeFileSync(join(place, "template.json"), JSON.stringify(description));
  renameSync(place, join(directory, folder));
}

void test("a template is found by name and by id, the newest of one name first, and later ones are noticed", () => {
  using directory = temporary();
  const templates = openSetupTemplates(directory.path);
  assert.throws(() => templates.find("base"), { name: "TEMPLATE_NOT_FOUND" });
  put(directory.path, "base-1", "base", "2026-01-01T00:00:00Z");
  assert.equal(templates.find("base").templateID, "base-1");
  put(directory.path, "base-2", "base", "2026-02-01T00:00:00Z");
  assert.equal(templates.find("base").templateID, "base-2");
  assert.equal(templates.find("base-1").templateID, "base-1");
  assert.throws(() => templates.find("nope"), /template 'nope' not found$/);
});

void test("if base could not be made, its name refers to host until base exists", () => {
  using directory = temporary();
  put(directory.path, "host-1", "host", "2026-01-01T00:00:00Z", ["/usr"]);
  writeFileSync(join(directory.path, "aliases.json"), JSON.stringify({ base: "host-1" }));
  const templates = openSetupTemplates(directory.path);
  assert.deepEqual(templates.find("base").image.binds, ["/usr"]);
  assert.equal(templates.find("base").name, "host");
  put(directory.path, "base-1", "base", "2026-02-01T00:00:00Z");
  assert.equal(templates.find("base").templateID, "base-1");
});

void test("a half-made template is ignored", () => {
  using directory = temporary();
  mkdirSync(join(directory.path, "base-1/rootfs"), { recursive: true });
  writeFileSync(join(directory.path, "base-1/template.json"), '{"name":"base"');
  assert.throws(() => openSetupTemplates(directory.path).find("base"), { name: "TEMPLATE_NOT_FOUND" });
});
