// The socket of one page: it proves its session with the first message, then gets the table and opens terminals and logs.
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { CONSOLE_PROTOCOL, type FromPage } from "@svc/contract/console.ts";
import { asFailure } from "@svc/contract/failures.ts";
import { type RawData, type WebSocket, WebSocketServer } from "ws";
import type { Log } from "../log.ts";
import { type Board, type Listener, textOf } from "./board.ts";
import { type Channel, openLogChannel, openTerminal } from "./channels.ts";
import type { Guard } from "./guard.ts";
import type { Inside } from "./inside.ts";
import type { Session, Sessions } from "./sessions.ts";

export type LiveParts = {
  readonly guard: Guard;
  readonly sessions: Sessions;
  readonly board: Board | undefined;
  readonly inside: Inside | undefined;
  readonly log: Log;
};

const HELLO_MS = 5_000;
const PING_MS = 20_000;
const MAX_PAGES = 500;
const MAX_CHANNELS = 16;
const MAX_MESSAGE_BYTES = 256 * 1024;
/** A page with more than this unsent gets no batches, and the whole table once it has caught up. */
const BEHIND_BYTES = 4 * 1024 * 1024;
/** Close codes of the page's protocol. */
const SIGNED_OUT = 4401;
const TOO_MANY = 4429;

export class Live {
  readonly #parts: LiveParts;
  readonly #pages = new Set<Page>();
  readonly #server = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    maxPayload: MAX_MESSAGE_BYTES,
    handleProtocols: (offered) => (offered.has(CONSOLE_PROTOCOL) ? CONSOLE_PROTOCOL : false),
  });
  readonly #beat: NodeJS.Timeout;

  constructor(parts: LiveParts) {
    this.#parts = parts;
    this.#beat = setInterval(() => {
      for (const page of this.#pages) page.beat();
    }, PING_MS).unref();
  }

  get pages(): number {
    return this.#pages.size;
  }

  /** Takes over the connection of an upgrade request, or refuses it. */
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer) {
    const refuse = (status: string) => void socket.end(`HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
    socket.on("error", () => {});
    let port: string;
    try {
      if (request.headers.origin === undefined) return refuse("403 Forbidden");
      ({ port } = this.#parts.guard.ownOrigin(request.headers));
    } catch {
      return refuse("403 Forbidden");
    }
    if (this.#pages.size >= MAX_PAGES) return refuse("429 Too Many Requests");
    this.#server.handleUpgrade(request, socket, head, (socket_) => {
      const page: Page = new Page(
        socket_,
        this.#parts,
        (half) => this.#parts.sessions.find(request.headers.cookie, port, half),
        () => this.#pages.delete(page),
      );
      this.#pages.add(page);
    });
  }

  /** Ends the sockets of a session that signed out. */
  end(session: Session): void {
    for (const page of this.#pages) if (page.session?.id === session.id) page.close(SIGNED_OUT, "signed out");
  }

  close(): void {
    clearInterval(this.#beat);
    for (const page of this.#pages) page.close(1001, "the server is stopping");
    this.#server.close();
  }
}

class Page implements Listener {
  session: Session | undefined;
  readonly #socket: WebSocket;
  readonly #parts: LiveParts;
  readonly #channels = new Map<number, Channel>();
  #isBehind = false;
  #isAlive = true;

  constructor(socket: WebSocket, parts: LiveParts, sessionOf: (half: string) => Session | undefined, onClose: () => void) {
    this.#socket = socket;
    this.#parts = parts;
    const late = setTimeout(() => this.session ?? this.close(SIGNED_OUT, "expected a hello"), HELLO_MS);
    socket.on("error", () => {});
    socket.on("pong", () => {
      this.#isAlive = true;
    });
    socket.on("close", () => {
      clearTimeout(late);
      onClose();
      this.#parts.board?.remove(this);
      for (const channel of this.#channels.values()) channel.close();
      this.#channels.clear();
    });
    socket.on("message", (data: RawData, isBinary: boolean) => {
      const message = isBinary ? undefined : messageOf(data);
      if (message === undefined) return this.close(1003, "not a message of the console");
      if (this.session !== undefined) return this.#take(message);
      this.session = message.t === "hello" ? sessionOf(message.half) : undefined;
      if (this.session === undefined) return this.close(SIGNED_OUT, "the session is over");
      socket.send(textOf({ t: "ready" }));
      this.#parts.board?.add(this);
    });
  }

  onText(text: string) {
    if (this.#socket.readyState !== this.#socket.OPEN) return;
    if (this.#isBehind) {
      if (this.#socket.bufferedAmount > 0) return;
      this.#isBehind = false;
      return this.#parts.board?.resend(this);
    }
    this.#socket.send(text);
    this.#isBehind = this.#socket.bufferedAmount > BEHIND_BYTES;
  }

  beat() {
    if (!this.#isAlive) return this.#socket.terminate();
    if (this.session !== undefined && this.#parts.sessions.isOver(this.session)) return this.close(SIGNED_OUT, "the session is over");
    this.#isAlive = false;
    this.#socket.ping();
  }

  close(code: number, why: string): void {
    this.#socket.close(code, why);
    setTimeout(() => this.#socket.terminate(), 1_000).unref();
  }

  #take(message: FromPage) {
    if (message.t === "open") return this.#open(message);
    const channel = message.t === "hello" ? undefined : this.#channels.get(message.id);
    if (message.t === "input") channel?.input?.(Buffer.from(message.data, "utf8"));
    else if (message.t === "resize") channel?.resize?.(sizeOf(message));
    else if (message.t === "close") channel?.close();
  }

  #open(message: Extract<FromPage, { t: "open" }>) {
    const { id } = message;
    const { inside } = this.#parts;
    if (this.#channels.has(id)) return;
    if (this.#channels.size >= MAX_CHANNELS) return this.close(TOO_MANY, "too many terminals and logs are open on this page");
    const send = (text: string) => this.#socket.readyState === this.#socket.OPEN && this.#socket.send(text);
    const end = (rest: { exitCode?: number; error?: string }) => {
      this.#channels.delete(id);
      send(textOf({ t: "end", id, ...rest }));
    };
    if (inside === undefined) return end({ error: "this server has no sandboxes" });
    if (message.kind === "terminal" && this.session?.isReadOnly !== false) return end({ error: "this console is read-only, so it opens no terminals" });
    const head = Buffer.alloc(4);
    head.writeUInt32BE(id);
    const events = {
      onStarted: (pid: number) => void send(textOf({ t: "started", id, pid })),
      onBytes: (bytes: Buffer) => {
        if (this.#socket.readyState !== this.#socket.OPEN) return Promise.resolve();
        // Waiting for the write keeps a fast program from filling this process's memory.
        return new Promise<void>((resolve) => this.#socket.send(Buffer.concat([head, bytes]), () => resolve()));
      },
      onEntries: (entries: Parameters<typeof textOf>[0] & { t: "log" }) => void send(textOf(entries)),
    };
    const channel =
      message.kind === "terminal"
        ? openTerminal({ inside, sandboxID: message.sandboxID, session: message.session, size: sizeOf(message), ...events })
        : openLogChannel({ inside, sandboxID: message.sandboxID, onEntries: (entries) => events.onEntries({ t: "log", id, entries }) });
    this.#channels.set(id, channel);
    channel.ended.then(
      (exitCode) => end(exitCode === undefined ? {} : { exitCode }),
      (error: unknown) => end({ error: asFailure(error).message }),
    );
  }
}

const sizeOf = ({ cols, rows }: { readonly cols: number; readonly rows: number }) => ({ cols: bounded(cols), rows: bounded(rows) });
const bounded = (value: number) => Math.min(500, Math.max(2, Math.floor(Number(value)) || 80));

/** Returns undefined for anything that the page does not send. */
function messageOf(data: RawData): FromPage | undefined {
  try {
    const message = JSON.parse(String(data)) as Record<string, unknown>;
    const has = (member: string, type: string) => typeof message[member] === type;
    switch (message["t"]) {
      case "hello":
        return has("half", "string") ? (message as FromPage) : undefined;
      case "open":
        if (!has("id", "number") || !has("sandboxID", "string")) return undefined;
        return message["kind"] === "log" || (message["kind"] === "terminal" && has("session", "string")) ? (message as FromPage) : undefined;
      case "input":
        return has("id", "number") && has("data", "string") ? (message as FromPage) : undefined;
      case "resize":
      case "close":
        return has("id", "number") ? (message as FromPage) : undefined;
      default:
        return undefined;
    }
  } catch {
    return undefined;
  }
}
