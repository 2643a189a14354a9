// The framing of Connect streams: cut anywhere, bounded, and never ended silently.
import assert from "node:assert/strict";
import { test } from "node:test";
import { envelope, messagesOf } from "../src/connect-stream.ts";
import { Failure } from "../src/failures.ts";

function ending(body: object): Buffer {
  const frame = envelope(body);
  frame.writeUInt8(2, 0);
  return frame;
}

async function* chunksOf(bytes: Buffer, size: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function collect(body: AsyncIterable<Buffer>, method = "process.Process/Start"): Promise<unknown[]> {
  const messages: unknown[] = [];
  for await (const message of messagesOf(body, method)) messages.push(message);
  return messages;
}

function isFailure(name: string) {
  return (error: unknown) => error instanceof Failure && error.name === name;
}

void test("messages are the same however the network cuts them", async () => {
  const sent = [{ event: { start: { pid: 7 } } }, { event: { data: { stdout: "x".repeat(5000) } } }, {}, { text: "täst" }];
  const bytes = Buffer.concat([...sent.map(envelope), ending({})]);
  for (const size of [1, 2, 3, 5, 6, 7, 100, 4096, bytes.length]) {
    assert.deepEqual(await collect(chunksOf(bytes, size)), sent, `chunks of ${size}`);
  }
});

void test("a stream that stops without its end message is a failure, not an end", async () => {
  const bytes = Buffer.concat([envelope({ event: {} }), ending({})]);
  for (const length of [0, 3, 5, 10, bytes.length - 1]) {
    await assert.rejects(collect(chunksOf(bytes.subarray(0, length), 4)), isFailure("SERVER_UNREACHABLE"), `cut after ${length} bytes`);
  }
});

void test("the error in an end message becomes a failure by its code", async () => {
  const error = (code: string) => chunksOf(ending({ error: { code, message: "no luck" } }), 1024);
  await assert.rejects(collect(error("deadline_exceeded")), isFailure("TIMED_OUT"));
  await assert.rejects(collect(error("not_found")), isFailure("PROCESS_NOT_FOUND"));
  await assert.rejects(collect(error("not_found"), "filesystem.Filesystem/WatchDir"), isFailure("FILE_NOT_FOUND"));
  await assert.rejects(collect(error("from_the_future")), isFailure("INTERNAL"));
  await assert.rejects(collect(error("constructor")), isFailure("INTERNAL"));
});

void test("a message whose header announces a huge size is refused before it is buffered", async () => {
  const header = Buffer.from([0, 0xff, 0xff, 0xff, 0xff]);
  await assert.rejects(collect(chunksOf(header, 5)), isFailure("INTERNAL"));
});

void test("a compressed message is refused, since the client never requests compression", async () => {
  const frame = envelope({});
  frame.writeUInt8(1, 0);
  await assert.rejects(collect(chunksOf(frame, 64)), isFailure("INTERNAL"));
});
