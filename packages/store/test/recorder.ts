// A relay between a store client and a master that records every message body with the name of its operation.
import assert from "node:assert/strict";
import { connect, createServer, type Socket } from "node:net";
import { BodyReader, decodeBody, encodeBody } from "../src/rpc/body.ts";
import { REQUEST_BYTES, RESPONSE_BYTES } from "../src/rpc/frame.ts";
import { functionID, type Operation, type OperationName, operations } from "../src/rpc/operations.ts";
import type { Schema } from "../src/rpc/schema.ts";

export type Recorded = { readonly name: OperationName | undefined; readonly kind: "request" | "response"; readonly body: Buffer };

/** Calls `each` with every whole frame of a stream of bytes. */
function frames(headBytes: number, sizeAt: number, each: (head: Buffer, body: Buffer) => void): (bytes: Buffer) => void {
  let left = Buffer.alloc(0);
  return (bytes) => {
    left = Buffer.concat([left, bytes]);
    while (left.length >= headBytes) {
      const size = left.readUInt32LE(sizeAt);
      const end = headBytes + size + left.readUInt32LE(sizeAt + 4);
      if (left.length < end) return;
      each(left.subarray(0, headBytes), left.subarray(headBytes, headBytes + size));
      left = left.subarray(end);
    }
  };
}

/** With `loses`, the connection ends in place of the answer, after the master has sent it. */
export async function startRecorder(
  target: number,
  brand: string,
  loses: (name: OperationName | undefined) => boolean = () => false,
): Promise<{ readonly port: number; readonly recorded: Recorded[] } & AsyncDisposable> {
  const recorded: Recorded[] = [];
  const names = new Map((Object.keys(operations) as OperationName[]).map((name) => [functionID(`${brand}::WrappedMasterService`, name), name]));
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const master = connect(target, "127.0.0.1");
    const called = new Map<number, OperationName | undefined>();
    const requests = frames(REQUEST_BYTES, 12, (head, body) => {
      const name = names.get(head.readUInt32LE(8));
      called.set(head.readUInt32LE(4), name);
      recorded.push({ name, kind: "request", body });
    });
    let isLost = false;
    const responses = frames(RESPONSE_BYTES, 8, (head, body) => {
      const name = called.get(head.readUInt32LE(4));
      recorded.push({ name, kind: "response", body });
      isLost ||= loses(name);
    });
    client.on("data", (bytes: Buffer) => {
      requests(bytes);
      master.write(bytes);
    });
    master.on("data", (bytes: Buffer) => {
      responses(bytes);
      if (isLost) client.destroy();
      else client.write(bytes);
    });
    for (const socket of [client, master]) {
      sockets.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => {
        client.destroy();
        master.destroy();
      });
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as { port: number }).port,
    recorded,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** Decodes and encodes every body to the same bytes; returns "NAME request" and "NAME response" for each message that occurred. */
export function requireSame(recorded: readonly Recorded[]): Set<string> {
  const seen = new Set<string>();
  for (const { name, kind, body } of recorded) {
    assert.ok(name !== undefined, `an operation that is not declared was called: ${body.toString("hex").slice(0, 80)}`);
    const operation = operations[name] as unknown as Operation;
    const schema = (kind === "request" ? operation.args : operation.result) as Schema<unknown> | undefined;
    const hash = kind === "request" ? operation.argsHash : operation.resultHash;
    seen.add(`${name} ${kind}`);
    if (body.length === 0) {
      assert.equal(schema, undefined, `${name} ${kind}`);
      continue;
    }
    assert.ok(schema !== undefined);
    const { literal } = new BodyReader(body).begin();
    const again = encodeBody(schema, hash, decodeBody(schema, hash, body), literal === undefined ? undefined : schema.literal);
    assert.equal(again.toString("hex"), body.toString("hex"), `${name} ${kind}`);
  }
  return seen;
}
