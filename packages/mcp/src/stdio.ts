// Serves the protocol on stdin and stdout, one message per line. An invalid message gets an error; one that is too long ends the session.
import { once } from "node:events";
import { Transform } from "node:stream";
import {
  isJSONRPCErrorResponse,
  isJSONRPCNotification,
  isJSONRPCRequest,
  isJSONRPCResultResponse,
  type JSONRPCMessage,
  type Transport,
} from "@modelcontextprotocol/server";
import { serveStdio as serveConnection } from "@modelcontextprotocol/server/stdio";
import { MAX_MESSAGE_BYTES } from "./http.ts";
import type { SessionSandboxes } from "./sandboxes.ts";
import { openServer } from "./server.ts";

const messageKinds = [isJSONRPCRequest, isJSONRPCNotification, isJSONRPCResultResponse, isJSONRPCErrorResponse];
const NEWLINE = 10;
const PARSE_ERROR = -32_700;
const INVALID_REQUEST = -32_600;

/** Serves one session until `stop`, or until the agent closes its end of the pipe; returns the exit code of the process. */
export async function serveStdio(sandboxes: SessionSandboxes, stop: Promise<void>): Promise<number> {
  const closed = Promise.withResolvers<number>();
  const lines = process.stdin.pipe(wholeLines(MAX_MESSAGE_BYTES));
  const transport: Transport = {
    async start() {
      lines.on("data", (line: string) => receive(transport, line));
    },
    send: write,
    async close() {
      transport.onclose?.();
    },
  };
  lines.once("error", (error) => {
    process.stderr.write(`svc mcp: the session ends: ${error.message}\n`);
    closed.resolve(1);
  });
  // The opening message decides which revision of the protocol the connection speaks.
  const connection = serveConnection(() => openServer(sandboxes), { transport });
  // A closed pipe means that the agent has ended.
  for (const [stream, event] of [
    [lines, "end"],
    [process.stdin, "close"],
  ] as const)
    stream.once(event, () => closed.resolve(0));
  const code = await Promise.race([closed.promise, stop.then(() => 0)]);
  await connection.close().catch(() => undefined);
  await sandboxes.close();
  return code;
}

function receive(transport: Transport, line: string): void {
  if (line.trim() === "") return;
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    void write({ jsonrpc: "2.0", id: null, error: { code: PARSE_ERROR, message: "expected a line of JSON, a message of the protocol" } });
    return;
  }
  if (messageKinds.some((is) => is(value))) transport.onmessage?.(value as JSONRPCMessage);
  else refuse(value);
}

/** Even a malformed response gets no answer, since two peers that answered each other's responses would never stop. */
function refuse(value: unknown): void {
  const { id, method, result, error } = ((typeof value === "object" ? value : undefined) ?? {}) as Record<string, unknown>;
  if (method === undefined && (result !== undefined || error !== undefined)) return;
  const message = "expected a message of JSON-RPC 2.0: a request, a notification or an answer";
  void write({ jsonrpc: "2.0", id: typeof id === "string" || typeof id === "number" ? id : null, error: { code: INVALID_REQUEST, message } });
}

/** An error for a message without an id has the id null, which the protocol's own type lacks. */
async function write(message: JSONRPCMessage | { jsonrpc: "2.0"; id: null | string | number; error: object }): Promise<void> {
  if (!process.stdout.write(`${JSON.stringify(message)}\n`)) await once(process.stdout, "drain");
}

/** Splits a stream into lines, each joined only once. Fails on a line that is too long. */
function wholeLines(maxBytes: number): Transform {
  let pieces: Buffer[] = [];
  let size = 0;
  return new Transform({
    readableObjectMode: true,
    transform(chunk: Buffer, _encoding, done) {
      let start = 0;
      for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
        if (size + end - start > maxBytes) return done(tooLong(maxBytes));
        this.push(Buffer.concat([...pieces, chunk.subarray(start, end)]).toString());
        pieces = [];
        size = 0;
        start = end + 1;
      }
      size += chunk.length - start;
      if (size > maxBytes) return done(tooLong(maxBytes));
      pieces.push(chunk.subarray(start));
      done();
    },
  });
}

const tooLong = (maxBytes: number) => new Error(`a message has at most ${maxBytes} bytes, and one is longer`);
