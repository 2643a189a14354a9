// The sockets of an HTTP server whose requests are many and small: requests in order, answers in order, silent clients bounded.
import { STATUS_CODES } from "node:http";
import { createServer, type Server, type Socket } from "node:net";
import { type Request, RequestReader } from "./request.ts";

export type Answer = {
  readonly status: number;
  readonly type: string;
  readonly body: Buffer;
  readonly allow?: string;
  readonly headers?: Readonly<Record<string, string>>;
};

/** A connection that says nothing this long is closed. */
const IDLE_MS = 60_000;
/** Up to this size head and body are written as one. */
const JOINED_BYTES = 16 * 1024;
/** Answers of one connection that wait for the disk or the client. */
const MAX_PIPELINED = 256;

export type HttpOptions = {
  readonly maxBodyBytes: number;
  /** The setting that bounds a body, for the message. */
  readonly bodySetting: string;
  readonly maxConnections: number;
  /** Gives the answer now or later; never throws. */
  answer(request: Request, done: (answer: Answer) => void): void;
  /** The answer to a request that could not be read. */
  refuse(error: unknown): Answer;
  observe(request: Request | undefined, status: number, seconds: number): void;
};

export function createHttpServer(options: HttpOptions): Server {
  const server = createServer({ noDelay: true }, (socket) => serveConnection(socket, options));
  server.maxConnections = options.maxConnections;
  return server;
}

function serveConnection(socket: Socket, options: HttpOptions): void {
  const reader = new RequestReader(options.maxBodyBytes, options.bodySetting, () => socket.write("HTTP/1.1 100 Continue\r\n\r\n"));
  // One place per request, so that an answer that waits for the disk keeps its turn.
  const turns: { text?: (Buffer | string)[]; last: boolean }[] = [];
  let ending = false;
  let paused = false;

  function flush(): void {
    socket.cork();
    while (turns[0]?.text !== undefined) {
      const turn = turns.shift() as { text: (Buffer | string)[]; last: boolean };
      for (const part of turn.text) socket.write(part as string, "latin1");
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
        const turn: { text?: (Buffer | string)[]; last: boolean } = { last: !request.keepAlive };
        turns.push(turn);
        ending = turn.last;
        let later = false;
        options.answer(request, (given) => {
          options.observe(request, given.status, (performance.now() - started) / 1000);
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
      const refusal = options.refuse(error);
      options.observe(undefined, refusal.status, 0);
      turns.push({ text: print(refusal, false, false), last: true });
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

const lines = (headers: Readonly<Record<string, string>>) =>
  Object.entries(headers)
    .map(([name, value]) => `${name}: ${value}\r\n`)
    .join("");

function print(given: Answer, headOnly: boolean, keepAlive: boolean): (Buffer | string)[] {
  const head =
    `HTTP/1.1 ${given.status} ${STATUS_CODES[given.status] ?? "Unknown"}\r\nContent-Type: ${given.type}\r\nContent-Length: ${given.body.length}\r\n` +
    (given.headers === undefined ? "" : lines(given.headers)) +
    `${given.allow === undefined ? "" : `Allow: ${given.allow}\r\n`}${keepAlive ? "" : "Connection: close\r\n"}\r\n`;
  if (headOnly) return [Buffer.from(head, "latin1")];
  // One piece of text is one call, and needs no buffer of its own.
  return given.body.length <= JOINED_BYTES ? [head + given.body.toString("latin1")] : [Buffer.from(head, "latin1"), given.body];
}
