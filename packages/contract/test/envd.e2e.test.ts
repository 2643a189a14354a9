// The envd client with a real sandbox: processes, files, failures by name, and constant memory.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import { after, before, describe, test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { startNode, type TestNode } from "@svc/harness/node.ts";
import { SvcClient } from "../src/client.ts";
import type { EnvdClient, StartRequest } from "../src/envd.ts";
import { Failure, type FailureName } from "../src/failures.ts";

const MIB = 1024 * 1024;

function isFailure(name: FailureName) {
  return (error: unknown) => error instanceof Failure && error.name === name;
}

void describe("the envd client", needs("root", "runsc", "envd", "base"), () => {
  let node: TestNode;
  let client: SvcClient;
  let sandboxID: string;
  let envd: EnvdClient;
  before(async () => {
    node = await startNode();
    client = new SvcClient({ baseURL: node.url, apiKey: node.apiKey });
    const sandbox = await client.create({ templateID: "base", timeout: 3600 });
    sandboxID = sandbox.sandboxID;
    envd = client.envd(sandbox);
  });
  after(async () => {
    envd?.close();
    await node?.[Symbol.asyncDispose]();
  });

  async function run(request: StartRequest): Promise<{ output: string; exitCode: number | undefined }> {
    let output = "";
    for await (const event of envd.start({ stdin: false, ...request })) {
      if (event.type === "stdout") output += event.data.toString();
      if (event.type === "end") return { output, exitCode: event.exitCode };
    }
    return { output, exitCode: undefined };
  }

  void test("a process reports its start, its output and its end", async () => {
    const types: string[] = [];
    for await (const event of envd.start({ cmd: "sh", args: ["-c", "echo a; echo b >&2; exit 3"], stdin: false })) types.push(event.type);
    assert.equal(types[0], "start");
    assert.deepEqual(types.slice(1, -1).sort(), ["stderr", "stdout"]);
    assert.equal(types.at(-1), "end");
  });

  void test("a command beyond 128 KiB for one argument is reported as too long, on gVisor too", async () => {
    assert.deepEqual(await run({ cmd: "sh", args: ["-c", 'printf %s "$1" | wc -c', "sh", "x".repeat(131_071)] }), { output: "131071\n", exitCode: 0 });
    await assert.rejects(
      run({ cmd: "sh", args: ["-c", `: ${"x".repeat(131_072)}`] }),
      /argument list too long: argument 2 has 131074 bytes, the maximum is 131071: send it on stdin/,
    );
  });

  void test("a process keeps running after its client leaves, is listed by its tag, takes input, and is found again", async () => {
    for await (const event of envd.start({ cmd: "sh", args: ["-c", "read line; echo got $line; exit 6"], tag: "left" })) if (event.type === "start") break;
    const listed = (await envd.processes()).find(({ tag }) => tag === "left");
    assert.equal(listed?.cmd, "sh");
    const events = envd.connect({ tag: "left" });
    assert.deepEqual((await events.next()).value, { type: "start", pid: listed?.pid });
    await envd.sendInput({ tag: "left" }, "stdin", Buffer.from("täst\n"));
    assert.equal(((await events.next()).value as { data: Buffer }).data.toString(), "got täst\n");
    assert.equal(((await events.next()).value as { exitCode: number }).exitCode, 6);
    const late = envd.connect({ pid: listed?.pid ?? 0 });
    const last: unknown[] = [];
    for await (const event of late) last.push(event);
    assert.equal((last.at(-1) as { exitCode: number }).exitCode, 6, "the end is told for a while after it");
  });

  void test("failures have the names of the table", async () => {
    await assert.rejects(envd.stat("/no/such"), isFailure("FILE_NOT_FOUND"));
    await assert.rejects(envd.download("/no/such"), isFailure("FILE_NOT_FOUND"));
    await assert.rejects(envd.download("/etc"), isFailure("INVALID_REQUEST"));
    await assert.rejects(envd.listDir("/etc/passwd"), isFailure("INVALID_REQUEST"));
    await assert.rejects(envd.makeDir("/tmp"), isFailure("FILE_EXISTS"));
    await assert.rejects(envd.sendSignal({ pid: 999_999 }, "SIGTERM"), isFailure("PROCESS_NOT_FOUND"));
    await assert.rejects(envd.stat("/", { user: "nobody-here" }), isFailure("UNAUTHENTICATED"));
    await assert.rejects(run({ cmd: "sleep", args: ["100"], timeoutMs: 300 }), isFailure("TIMED_OUT"));
    await assert.rejects(client.envd({ sandboxID: "i00000000000000000000" }).stat("/"), isFailure("SANDBOX_NOT_RUNNING"));
    await assert.rejects(client.envd({ sandboxID, envdAccessToken: "0".repeat(64) }).stat("/"), isFailure("UNAUTHENTICATED"));
    await assert.rejects(client.envd({ sandboxID }).processes(), isFailure("UNAUTHENTICATED"));
  });

  void test("files and directories are made, listed, moved and removed", async () => {
    await envd.makeDir("work/deep");
    await envd.upload("work/deep/ünï code", Buffer.from("text"));
    const [entry] = await envd.listDir("work/deep");
    assert.deepEqual([entry?.name, entry?.type, entry?.sizeBytes, entry?.owner, entry?.path], ["ünï code", "file", 4, "user", "/home/user/work/deep/ünï code"]);
    await envd.move("work/deep/ünï code", "work/moved");
    assert.equal((await envd.stat("work/moved")).sizeBytes, 4);
    await envd.remove("work");
    await assert.rejects(envd.stat("work"), isFailure("FILE_NOT_FOUND"));
  });

  void test("a file of 256 MiB goes up and comes down the same, with constant memory", async () => {
    const size = 256 * MIB;
    const chunk = Buffer.alloc(MIB, "svc ");
    const sent = createHash("sha256");
    let peak = 0;
    const watch = () => {
      peak = Math.max(peak, process.memoryUsage().rss);
    };
    watch();
    const before = peak;
    const source = Readable.from(
      (function* () {
        for (let count = 0; count < size / MIB; count++) {
          chunk.writeUInt32BE(count);
          sent.update(chunk);
          watch();
          yield Buffer.from(chunk);
        }
      })(),
    );
    await envd.upload("/tmp/large", source, { sizeBytes: size });
    const received = createHash("sha256");
    const { body, sizeBytes } = await envd.download("/tmp/large");
    assert.equal(sizeBytes, size);
    for await (const piece of body as AsyncIterable<Buffer>) {
      received.update(piece);
      watch();
    }
    assert.equal(received.digest("hex"), sent.digest("hex"));
    assert.ok(peak - before < 160 * MIB, `grew by ${Math.round((peak - before) / MIB)} MiB`);
    await envd.remove("/tmp/large");
  });
});
