// The command-line tools: creating and mounting records, transfers and measurements.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { randomBytes } from "./parts.ts";
import { startHttp } from "./services.ts";

const MAIN = fileURLToPath(new URL("../src/cli/main.ts", import.meta.url));
const START = `import(process.argv[1]).then(({ main }) => main(process.argv.slice(2))).then((code) => { process.exitCode = code; })`;
const flags = ["--disable-warning=ExperimentalWarning", "-e", START];
const SEGMENT = fileURLToPath(new URL("../src/cli/segment-main.ts", import.meta.url));

const run = (...args: string[]) => started(MAIN, args);
const segment = (...args: string[]) => started(SEGMENT, args);

function started(main: string, args: readonly string[]): Promise<{ code: number; out: string; err: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, [...flags, main, ...args], { maxBuffer: 1 << 26 }, (error, out, err) =>
      resolve({ code: error === null ? 0 : Number(error.code), out, err }),
    );
  });
}

void test("segment register creates a record with empty buffers, show and list find it, and a second register is refused", async () => {
  await using service = await startHttp();
  const at = ["--metadata", service.metadata];
  assert.deepEqual(await segment("register", "ram1", "--output", "json", ...at), {
    code: 0,
    out: `{"key":"svc/ram/ram1","record":{"server_name":"ram1","protocol":"rdma","devices":[],"priority_matrix":{},"buffers":[]}}\n`,
    err: "",
  });
  assert.equal((await segment("register", "disk", "--kind", "nvmeof", "--server", "owner", ...at)).code, 0);
  assert.deepEqual(JSON.parse((await service.get("svc/nvmeof/disk")) ?? ""), { server_name: "owner", protocol: "nvmeof", buffers: [] });
  assert.deepEqual(JSON.parse((await segment("list", "--output", "json", ...at)).out), ["svc/ram/ram1", "svc/nvmeof/disk"]);
  const again = await segment("register", "ram1", ...at);
  assert.equal(again.code, 2);
  assert.match(again.err, /svc\/ram\/ram1 exists/);
  assert.match((await segment("show", "none", ...at)).err, /svc\/ram\/none or svc\/nvmeof\/none/);
});

void test("segment mount fills local_path_map, and the mounted file is read and written as a segment", async () => {
  await using service = await startHttp();
  const folder = mkdtempSync(join(tmpdir(), "svc-test-"));
  try {
    const at = ["--metadata", service.metadata];
    const file = join(folder, "data");
    const bytes = randomBytes(100_000);
    writeFileSync(file, bytes);
    await segment("register", "disk", "--kind", "nvmeof", "--server", "owner", ...at);
    assert.equal((await segment("mount", "disk", "/exports/data", file, "--machine", "me", ...at)).code, 0);
    const record = JSON.parse((await service.get("svc/nvmeof/disk")) ?? "") as { buffers: unknown[] };
    assert.deepEqual(record.buffers, [{ length: 100_000, file_path: "/exports/data", local_path_map: { me: file } }]);
    const piece = join(folder, "piece");
    assert.equal((await run("read", "nvmeof/disk", "--address", "1000", "--length", "5000", "--file", piece, "--name", "me", ...at)).code, 0);
    assert.ok(readFileSync(piece).equals(bytes.subarray(1000, 6000)));
    assert.equal((await run("write", "nvmeof/disk", piece, "--address", "0", "--name", "me", ...at)).code, 0);
    assert.ok(readFileSync(file).subarray(0, 5000).equals(bytes.subarray(1000, 6000)));
  } finally {
    rmSync(folder, { recursive: true });
  }
});

void test("transfer doctor names the path to a peer and its speed, bench measures, and unknown arguments are refused", async () => {
  const serving = spawn(process.execPath, [...flags, MAIN, "serve", "--metadata", "P2PHANDSHAKE", "--length", "8388608", "--output", "json"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  try {
    const line = await new Promise<string>((resolve) => serving.stdout.setEncoding("utf8").once("data", resolve));
    const { segment } = JSON.parse(line) as { segment: string };
    const doctor = JSON.parse((await run("doctor", segment, "--metadata", "P2PHANDSHAKE", "--output", "json")).out) as { path: string; gbPerSecond: number };
    assert.match(doctor.path, /^shm:/);
    assert.ok(doctor.gbPerSecond > 0);
    const bench = JSON.parse(
      (
        await run(
          "bench",
          segment,
          "--metadata",
          "P2PHANDSHAKE",
          "--transports",
          "tcp",
          "--length",
          "4096",
          "--batch",
          "64",
          "--seconds",
          "1",
          "--output",
          "json",
        )
      ).out,
    ) as { path: string; operationsPerSecond: number };
    assert.match(bench.path, /^tcp:/);
    assert.ok(bench.operationsPerSecond > 0);
    assert.equal((await run("teleport")).code, 2);
    assert.match((await run("doctor", "127.0.0.1:1", "--metadata", "P2PHANDSHAKE")).err, /127\.0\.0\.1:1/);
  } finally {
    const ended = new Promise((resolve) => serving.once("exit", resolve));
    serving.kill("SIGTERM");
    assert.equal(await ended, 0);
  }
});
