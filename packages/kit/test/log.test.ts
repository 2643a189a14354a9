// The log of a server: lines are written at once, and a stalled reader stops nothing.
import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, mkdtempDisposableSync, openSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";

const LINES = 40_000;
const program = `
  import { openLog } from "@svc/kit/log.ts";
  const log = openLog("test", "info");
  for (let line = 0; line < ${LINES}; line++) log.info({ line, text: "x".repeat(400) }, "a line");
  process.stdout.write("all written\\n");
  process.stdin.once("data", () => { log.info("the last"); setTimeout(() => process.exit(0), 500); });
`;
const node = ["--disable-warning=ExperimentalWarning", "--input-type=module-typescript", "-e", program];

const endOf = (child: ChildProcess): Disposable => ({ [Symbol.dispose]: () => void child.kill("SIGKILL") });

async function saidAll(child: ChildProcess): Promise<void> {
  const [words] = (await once(child.stdout ?? assert.fail(), "data")) as [Buffer];
  assert.equal(words.toString(), "all written\n");
}

/** Reads the rest, lets the program end, and checks which lines arrived. */
async function readOn(child: ChildProcess, stream: Readable): Promise<void> {
  let text = "";
  let asked = false;
  stream.on("data", (chunk: Buffer) => {
    text += chunk.toString();
    if (asked || !text.includes("log lines are lost")) return;
    asked = true;
    child.stdin?.write("go\n");
  });
  await once(stream, "close");
  const lines = text
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line) as { msg: string; line?: number; lines?: number });
  const kept = lines.filter(({ msg }) => msg === "a line");
  const lost = lines.find(({ msg }) => msg.startsWith("log lines are lost"));
  assert.ok(
    kept.every(({ line }, index) => line === index),
    "the first lines are kept, in order",
  );
  assert.equal(kept.length + (lost?.lines ?? 0), LINES);
  assert.ok(kept.length > 0 && (lost?.lines ?? 0) > 0);
}

void test("a server whose log is not read continues, and later reports how many lines were lost: a socket", async () => {
  const child = spawn(process.execPath, node, { cwd: import.meta.dirname, stdio: ["pipe", "pipe", "pipe"] });
  using _ = endOf(child);
  await saidAll(child);
  await readOn(child, child.stderr);
});

void test("a server whose log is not read continues, and later reports how many lines were lost: a pipe", async () => {
  using folder = mkdtempDisposableSync(join(tmpdir(), "svc-log-"));
  const path = join(folder.path, "pipe");
  execFileSync("mkfifo", [path]);
  // We also open it for reading, so that writing works before there is a reader.
  const end = openSync(path, "r+");
  const child = spawn(process.execPath, node, { cwd: import.meta.dirname, stdio: ["pipe", "pipe", end] });
  using _ = endOf(child);
  await saidAll(child);
  const reader = spawn("cat", [path], { stdio: ["ignore", "pipe", "inherit"] });
  using __ = endOf(reader);
  child.once("exit", () => closeSync(end));
  await readOn(child, reader.stdout);
});

void test("a server whose stderr is a pipe of another user starts, and its lines arrive (EACCES on /proc/self/fd/2)", needs("root", "setpriv"), () => {
  const one = 'import { openLog } from "@svc/kit/log.ts"; openLog("test", "info").info("a line"); console.log("started");';
  const words = [process.execPath, ...node.slice(0, -1), one].map((word) => `'${word}'`).join(" ");
  // The pipe is root's, and only its owner may reopen it.
  const said = execFileSync("bash", ["-c", `set -o pipefail; setpriv --reuid=65534 --regid=65534 --clear-groups -- ${words} 2>&1 | cat`], {
    cwd: import.meta.dirname,
    encoding: "utf8",
  });
  assert.match(said, /^started$/m);
  assert.match(said, /"msg":"a line"/);
});

void test("a line written just before the end of the process is in the file", () => {
  using folder = mkdtempDisposableSync(join(tmpdir(), "svc-log-"));
  const path = join(folder.path, "log");
  const last = 'import { openLog } from "@svc/kit/log.ts"; openLog("test", "info").info("the last word"); process.kill(process.pid, "SIGKILL");';
  assert.throws(() =>
    execFileSync(process.execPath, [...node.slice(0, -1), last], { cwd: import.meta.dirname, stdio: ["ignore", "ignore", openSync(path, "w")] }),
  );
  assert.match(readFileSync(path, "utf8"), /the last word/);
});

void test("a server whose log is on a full disk continues", async () => {
  const full = openSync("/dev/full", "w");
  const child = spawn(process.execPath, node, { cwd: import.meta.dirname, stdio: ["pipe", "pipe", full] });
  closeSync(full);
  using _ = endOf(child);
  await saidAll(child);
  child.stdin?.write("go\n");
  const [code] = (await once(child, "exit")) as [number | null];
  assert.equal(code, 0);
});
