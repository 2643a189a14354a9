// The metadata server's sockets: requests in order, answers in order, silent clients bounded.
import { STATUS_CODES } from "node:http";
import { createServer, type Server, type Socket } from "node:net";
import { asFailure } from "@svc/contract/failures.ts";
import { type Answer, type Answering, answer, refusal } from "./answer.ts";
import { RequestReader } from "./request.ts";

/** A connection that says nothing this long is closed. */
const IDLE_MS = 60_000;
/** Answers of one connection that wait for the disk or the client. */
const MAX_PIPELINED = 256;

export type HttpOptions = Answering & {
  readonly maxValueBytes: number;
  readonly maxConnections: number;
  observe(method: string, status: number, seconds: number): void;
};

export function createMetadataServer(options: HttpOptions): Server {
  const server = createServer({ noDelay: true }, (socket) => serveConnection(socket, options));
  server.maxConnections = options.maxConnections;
  return server;
}

function serveConnection(socket: Socket, options: HttpOptions): void {
  const reader = new RequestReader(options.maxValueBytes, () => socket.write("HTTP/1.1 100 Continue\r\n\r\n"));
  // One place per request, so that an answer that waits for the disk keeps its turn.
  const turns: { text?: Buffer[]; last: boolean }[] = [];
  let ending = false;
  let paused = false;

  function flush(): void {
    socket.cork();
    while (turns[0]?.text !== undefined) {
      const turn = turns.shift() as { text: Buffer[]; last: boolean };
      for (const part of turn.text) socket.write(part);
      if (turn.last) socket.end();
    }
    socket.uncork();
    if (paused && turns.length < MAX_PIPELINED && !socket.writableNeedDrain) {
      paused = false;
      socket.resume();
      read();
    }
  }

  function read(): void {
    try {
      while (!ending && !paused) {
        const request = reader.next();
        if (request === undefined) return;
        const started = performance.now();
        const turn: { text?: Buffer[]; last: boolean } = { last: !request.keepAlive };
        turns.push(turn);
        ending = turn.last;
        let later = false;
        answer(request, options, (given) => {
          options.observe(request.method, given.status, (performance.now() - started) / 1000);
          turn.text = print(given, request.method === "HEAD", !turn.last);
          if (later) flush();
        });
        later = true;
        if (turns.length >= MAX_PIPELINED || socket.writableNeedDrain) {
          paused = true;
          socket.pause();
        }
      }
    } catch (error) {
      // What follows in the stream cannot be told from the body any more.
      ending = true;
      options.observe("none", asFailure(error).row.http, 0);
      turns.push({ text: print(refusal(error), false, false), last: true });
    }
  }

  socket.setTimeout(IDLE_MS, () => socket.destroy());
  socket.on("data", (bytes: Buffer) => {
    if (ending) return;
    reader.push(bytes);
    read();
    flush();
  });
  socket.on("drain", flush);
  socket.on("error", () => socket.destroy());
}

function print(given: Answer, headOnly: boolean, keepAlive: boolean): Buffer[] {
  const head =
    `HTTP/1.1 ${given.status} ${STATUS_CODES[given.status] ?? "Unknown"}\r\nContent-Type: ${given.type}\r\nContent-Length: ${given.body.length}\r\n` +
    `${given.allow === undefined ? "" : `Allow: ${given.allow}\r\n`}${keepAlive ? "" : "Connection: close\r\n"}\r\n`;
  return headOnly ? [Buffer.from(head, "latin1")] : [Buffer.from(head, "latin1"), given.body];
}
