// The protocol on stdin and stdout: what is no message is answered, and one that is too long ends the session with the reason.
import { Transform } from "node:stream";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { MAX_MESSAGE_BYTES } from "./http.ts";
import type { SessionSandboxes } from "./sandboxes.ts";
import { openServer } from "./server.ts";

const NEWLINE = 10;
const PARSE_ERROR = -32_700;
const INVALID_REQUEST = -32_600;

/** Serves one session until `stop`, or until the agent closes its end of the pipe; returns the exit code of the process. */
export async function serveStdio(sandboxes: SessionSandboxes, stop: Promise<void>): Promise<number> {
  const lines = wholeLines(MAX_MESSAGE_BYTES);
  const transport = new StdioServerTransport(process.stdin.pipe(lines), process.stdout, { maxBufferSize: 2 * MAX_MESSAGE_BYTES });
  const closed = Promise.withResolvers<number>();
  transport.onerror = (error) => {
    if (error instanceof SyntaxError) refuse(PARSE_ERROR, "expected a line of JSON, a message of the protocol");
    else if (error.name === "ZodError" || error.name === "$ZodError")
      refuse(INVALID_REQUEST, "expected a message of JSON-RPC 2.0: a request, a notification or an answer");
  };
  lines.once("error", (error) => {
    process.stderr.write(`svc mcp: the session ends: ${error.message}\n`);
    closed.resolve(1);
  });
  await openServer(sandboxes).connect(transport);
  // The agent is gone when its end of the pipe is.
  for (const [stream, event] of [
    [lines, "end"],
    [process.stdin, "close"],
  ] as const)
    stream.once(event, () => closed.resolve(0));
  const code = await Promise.race([closed.promise, stop.then(() => 0)]);
  await sandboxes.close();
  return code;
}

/** Passes lines on whole: put together once each, where the transport copies all that it has for every piece. Errors at a longer line. */
function wholeLines(maxBytes: number): Transform {
  let pieces: Buffer[] = [];
  let size = 0;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      const end = chunk.lastIndexOf(NEWLINE) + 1;
      const first = end === 0 ? chunk.length : chunk.indexOf(NEWLINE);
      if (size + first > maxBytes) return done(new Error(`a message has at most ${maxBytes} bytes, and one is longer`));
      if (end > 0) {
        this.push(Buffer.concat([...pieces, chunk.subarray(0, end)]));
        pieces = [];
        size = 0;
      }
      pieces.push(chunk.subarray(end));
      size += chunk.length - end;
      done();
    },
  });
}

function refuse(code: number, message: string): void {
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id: null, error: { code, message } })}\n`);
}
