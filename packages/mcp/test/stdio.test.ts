// The session on stdin and stdout, line by line: an invalid message gets an error and does not end it; one that is too long does.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const svc = fileURLToPath(new URL("../../cli/src/main.ts", import.meta.url));

function agent() {
  // The server makes no request to this address before a tool is called.
  const env = { ...process.env, SVC_URL: "http://127.0.0.1:9", SDK_API_KEY: "sdk_test" };
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", svc, "mcp"], { env, stdio: ["pipe", "pipe", "pipe"], timeout: 120_000 });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  let stderr = "";
  child.stderr.on("data", (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  // The process may end before everything is written.
  child.stdin.on("error", () => undefined);
  return {
    send: (text: string) => void child.stdin.write(text),
    next: async () => JSON.parse((await lines.next()).value as string) as { id: unknown; error?: { code: number; message: string }; result?: object },
    end: () => void child.stdin.end(),
    exit: once(child, "exit") as Promise<[code: number | null]>,
    said: () => stderr,
  };
}

const initialize = {
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "test", version: "1" } },
};

void test("invalid lines are answered with the protocol's errors, and the session continues", async () => {
  const it = agent();
  // The third and fourth lines are responses, which are not answered; the fifth line is empty.
  it.send('hello\n{"id":7,"method":5}\n{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"x"}}\n{"id":9,"error":{}}\n\r\n5\n');
  it.send(`${JSON.stringify(initialize)}\n`);
  assert.partialDeepStrictEqual(await it.next(), { id: null, error: { code: -32_700 } });
  assert.partialDeepStrictEqual(await it.next(), { id: 7, error: { code: -32_600 } });
  assert.partialDeepStrictEqual(await it.next(), { id: null, error: { code: -32_600 } });
  assert.partialDeepStrictEqual(await it.next(), { id: 1, result: { serverInfo: { name: "svc" } } });
  it.end();
  assert.deepEqual((await it.exit)[0], 0);
});

void test("a message above the limit ends the session, and stderr gives the reason", async () => {
  const it = agent();
  it.send("x".repeat(41 << 20));
  assert.deepEqual((await it.exit)[0], 1);
  assert.match(it.said(), /svc mcp: the session ends: a message has at most 41943040 bytes/);
});
