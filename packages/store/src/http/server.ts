// An HTTP server for many small requests: requests and answers keep their order, and slow clients are bounded.
import { STATUS_CODES } from "node:http";
import { createServer, type Server, type Socket } from "node:net";
import { Failure } from "@svc/contract/failures.ts";
import { Peers } from "@svc/kit/proxy/peers.ts";
import { Pipelined } from "@svc/kit/proxy/pipelined.ts";
import { FREE_READS, type SlowHead, SlowHeads } from "@svc/kit/proxy/slow-heads.ts";
import { type Request, RequestReader } from "./request.ts";

export type Answer = {
  readonly status: number;
  readonly type: string;
  readonly body: Buffer;
  readonly allow?: string;
  readonly headers?: Readonly<Record<string, string>>;
};

/** A connection without any traffic for this long is closed. */
const IDLE_MS = 60_000;
/** Up to this size, head and body are written together. */
const JOINED_BYTES = 16 * 1024;
/** Bounds the unsent answers of one connection. */
const MAX_PIPELINED = 256;
/** The number of pipelined requests that are answered at once; further ones continue in later ticks, so that other connections are served. */
const FREE_ROW = 32;
const ROW_PER_TICK = 16;
const MAX_UNFINISHED_HEADS = 4096;
const MAX_UNFINISHED_HEADS_PER_PEER = 2048;
/** The reasons for not reading, as bits; reading resumes when none is set. */
const BEHIND = 1;
const TICK = 2;
const SLOW = 4;

export type HttpOptions = {
  readonly maxBodyBytes: number;
  /** The setting that limits the body, for the message. */
  readonly bodySetting: string;
  /** Bounds the bytes of incomplete requests over all connections; the connection that exceeds it is refused. */
  readonly maxBufferedBytes?: number;
  readonly maxConnections: number;
  /** Closes the connection after every answer. */
  readonly closesEach?: boolean;
  /** Gives the answer now or later, and never throws. `peer` returns the address of the other end. */
  answer(request: Request, done: (answer: Answer) => void, peer: () => string): void;
  /** Returns the answer to a request that could not be read. */
  refuse(error: unknown): Answer;
  observe(request: Request | undefined, status: number, seconds: number): void;
};

/** The state that all connections of a server share. */
export type Shared = {
  /** The bytes of incomplete requests. */
  bytes: number;
  readonly pipelined: Pipelined;
  readonly slowHeads: SlowHeads;
};

export const sharedByConnections = (): Shared => ({
  bytes: 0,
  pipelined: new Pipelined(),
  slowHeads: new SlowHeads({ unfinishedHeads: MAX_UNFINISHED_HEADS, unfinishedHeadsPerPeer: MAX_UNFINISHED_HEADS_PER_PEER }),
});

export function createHttpServer(options: HttpOptions): Server {
  const shared = sharedByConnections();
  // When all connections are taken, an idle one is closed for a new client.
  const peers = new Peers({ connections: options.maxConnections, connectionsPerPeer: options.maxConnections });
  const server = createServer({ noDelay: true }, (socket) => {
    const peer = peerOf(socket);
    const refusal = peers.admit(peer);
    if (refusal !== undefined) {
      socket.on("error", () => undefined).end(refusal);
      socket.destroySoon();
      return;
    }
    const { isAnswering } = serveHttp(socket, options, shared);
    const connection = {
      peer,
      wire: socket,
      get mayGiveWay() {
        return !isAnswering();
      },
    };
    peers.add(connection);
    socket.once("close", () => peers.remove(connection));
  });
  // Connections above maxConnections are accepted only to receive a refusal, and closed at once.
  server.maxConnections = 2 * options.maxConnections;
  return server;
}

/** Serves the requests of a connection; `begun` has the bytes that it sent already. */
export function serveHttp(socket: Socket, options: HttpOptions, shared: Shared, begun?: Buffer): { isAnswering(): boolean } {
  const maxBufferedBytes = options.maxBufferedBytes ?? Infinity;
  let own = 0;
  const reader = new RequestReader(options.maxBodyBytes, options.bodySetting, () => socket.write("HTTP/1.1 100 Continue\r\n\r\n"));
  // One entry per request keeps the order of answers while one of them waits for the disk.
  const pending: { text?: (Buffer | string)[]; last: boolean }[] = [];
  const peer = () => peerOf(socket);
  let ending = false;
  let paused = 0;
  let row = 0;
  let slowReads = 0;
  const slowHead: SlowHead = {
    peer: peerOf(socket),
    goOn: () => resume(SLOW),
    giveUp() {
      endSlowHead();
      refuse({ ...options.refuse(new Failure("TIMED_OUT", "too many request heads of this client are unfinished; send each head at once")), status: 408 });
      flush();
    },
  };

  function pause(reason: number): void {
    paused |= reason;
    setReading(socket, false);
  }

  function resume(reason: number): void {
    paused &= ~reason;
    if (paused === 0) setReading(socket, true);
  }

  /** A head that arrives in many pieces is read more slowly, alternating with others. */
  function followHead(): void {
    if (ending || paused !== 0 || !reader.isInHead) return;
    if (++slowReads === 1) shared.slowHeads.enter(slowHead);
    // Entering may have ended this very connection, if too many heads are incomplete.
    if (slowReads < FREE_READS || ending) return;
    pause(SLOW);
    shared.slowHeads.wait(slowHead);
  }

  function endSlowHead(): void {
    if (slowReads === 0) return;
    slowReads = 0;
    shared.slowHeads.leave(slowHead);
    resume(SLOW);
  }

  function flush(): void {
    socket.cork();
    while (pending[0]?.text !== undefined) {
      const slot = pending.shift() as { text: (Buffer | string)[]; last: boolean };
      for (const part of slot.text) socket.write(part as string, "latin1");
      if (slot.last) socket.end();
    }
    socket.uncork();
    if ((paused & BEHIND) !== 0 && pending.length < MAX_PIPELINED && !socket.writableNeedDrain) {
      resume(BEHIND);
      read();
      flush();
    }
  }

  function awaitTick(): void {
    pause(TICK);
    shared.pipelined.wait(peer(), () => {
      if (socket.destroyed) return;
      row = FREE_ROW - ROW_PER_TICK;
      resume(TICK);
      read();
      flush();
    });
  }

  function count(bytes: number): void {
    shared.bytes += bytes - own;
    own = bytes;
  }

  function read(): void {
    try {
      while (!ending && paused === 0) {
        const request = reader.next();
        if (request === undefined) {
          row = 0;
          break;
        }
        endSlowHead();
        const started = performance.now();
        const slot: { text?: (Buffer | string)[]; last: boolean } = { last: options.closesEach === true || !request.keepAlive };
        pending.push(slot);
        ending = slot.last;
        let later = false;
        const done = (given: Answer): void => {
          options.observe(request, given.status, (performance.now() - started) / 1000);
          slot.text = print(given, request.method === "HEAD", !slot.last);
          if (later) flush();
        };
        options.answer(request, done, peer);
        later = true;
        if (pending.length >= MAX_PIPELINED || socket.writableNeedDrain) pause(BEHIND);
        if (++row >= FREE_ROW && reader.pendingBytes > 0 && !ending) awaitTick();
      }
      count(reader.pendingBytes);
      if (shared.bytes > maxBufferedBytes && own > 0)
        throw new Failure("CAPACITY_EXHAUSTED", `requests in progress take ${shared.bytes} bytes; the maximum is ${maxBufferedBytes}: try again later`);
    } catch (error) {
      refuse(options.refuse(error));
    }
  }

  /** The rest of the stream cannot be separated from the body any more, so the connection ends. */
  function refuse(refusal: Answer): void {
    ending = true;
    count(0);
    options.observe(undefined, refusal.status, 0);
    pending.push({ text: print(refusal, false, false), last: true });
  }

  socket.setTimeout(IDLE_MS, () => socket.destroy());
  const take = (bytes: Buffer): void => {
    if (ending) return;
    reader.push(bytes);
    read();
    flush();
    followHead();
  };
  socket.on("data", take);
  socket.on("drain", flush);
  socket.on("close", () => {
    count(0);
    endSlowHead();
  });
  socket.on("error", () => socket.destroy());
  if (begun !== undefined) take(begun);
  return { isAnswering: () => pending.length > 0 };
}

type Handle = { reading: boolean; readStart(): void; readStop(): void };

/** A paused Socket continues to read into a buffer of its own; stopping the handle stops reading altogether. */
function setReading(socket: Socket, reads: boolean): void {
  if (reads) socket.resume();
  else socket.pause();
  const { _handle: handle } = socket as unknown as { readonly _handle: Handle | null };
  if (handle === null || handle.reading === reads) return;
  handle.reading = reads;
  if (reads) handle.readStart();
  else handle.readStop();
}

const peerOf = (socket: Socket): string => socket.remoteAddress ?? "";

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
  // A single string needs one call and no buffer of its own.
  return given.body.length <= JOINED_BYTES ? [head + given.body.toString("latin1")] : [Buffer.from(head, "latin1"), given.body];
}
