// The software bill of materials: it names what is installed here, each once, with versions that can be looked up.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { PackageURL } from "packageurl-js";
import { goModulesOf } from "../src/sbom/go-modules.ts";

const run = promisify(execFile);
const main = fileURLToPath(new URL("../src/main.ts", import.meta.url));
type Bom = {
  bomFormat: string;
  specVersion: string;
  components: { name: string; version: string; purl: string; type: string; hashes?: { alg: string; content: string }[] }[];
};

void test("svc sbom lists Node, the npm packages with their hashes and the system's packages, each once and with its version", async () => {
  const folder = mkdtempSync(join(tmpdir(), "svc-sbom-"));
  try {
    const file = join(folder, "sbom.json");
    await run(process.execPath, [main, "sbom", "--output", file]);
    const { bomFormat, specVersion, components } = JSON.parse(readFileSync(file, "utf8")) as Bom;
    assert.deepEqual([bomFormat, specVersion], ["CycloneDX", "1.6"]);
    const purls = components.map(({ purl }) => purl);
    assert.equal(new Set(purls).size, purls.length);
    for (const { purl, version } of components) assert.equal(PackageURL.fromString(purl).version, version, purl);
    assert.ok(components.some(({ name, version, type }) => name === "node" && version === process.versions.node && type === "platform"));
    const fastify = components.find(({ purl }) => purl.startsWith("pkg:npm/fastify@"));
    assert.match(fastify?.hashes?.find(({ alg }) => alg === "SHA-512")?.content ?? "", /^[0-9a-f]{128}$/);
    assert.ok(!purls.some((purl) => /pkg:npm\/typescript@|\(devel\)/.test(purl)), "what only development needs is not part of an installation");
    const { stdout } = await run(process.execPath, [main, "sbom", "--no-system"], { maxBuffer: 64 * 2 ** 20 });
    assert.deepEqual(
      (JSON.parse(stdout) as Bom).components.map(({ purl }) => purl),
      purls.filter((purl) => !purl.startsWith("pkg:deb/")),
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

void test("the modules of a Go program are read from the program, with the module that replaced another", () => {
  const folder = mkdtempSync(join(tmpdir(), "svc-sbom-"));
  try {
    const program = join(folder, "program");
    const modules = "path\tsvc/x\nmod\tsvc/x\t(devel)\t\ndep\texample.org/a\tv1.2.3\th1:x=\ndep\texample.org/b\tv1.0.0\n=>\texample.org/c\tv2.0.0\th1:y=\n";
    const [begin, end] = ["3077af0c9274080241e1c107e6d618e6", "f932433186182072008242104116d8f2"].map((hex) => Buffer.from(hex, "hex"));
    writeFileSync(program, Buffer.concat([Buffer.alloc(100, 7), begin as Buffer, Buffer.from(modules), end as Buffer, Buffer.alloc(9)]));
    assert.deepEqual(goModulesOf(program), [
      { path: "svc/x", version: "(devel)" },
      { path: "example.org/a", version: "v1.2.3" },
      { path: "example.org/c", version: "v2.0.0" },
    ]);
    writeFileSync(program, "#!/bin/sh\n");
    assert.deepEqual(goModulesOf(program), []);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
