// The page's WebSocket, which carries the server's events, terminals and logs. It reconnects by itself when the server is back.
import { signal } from "@preact/signals";
import type { FromPage, FromServer } from "@svc/contract/console.ts";
import { ended, half, refresh, signed } from "./session.ts";

const PROTOCOL = "svc-console-1";
const SIGNED_OUT = 4401;
const FIRST_RETRY_MS = 250;
const MAX_RETRY_MS = 5_000;

export type Connection = "connecting" | "up" | "down";
export const connection = signal<Connection>("connecting");
/** The reason why the server itself receives no events at present; empty if it does. */
export const trouble = signal("");

type Handler = {
  readonly open: () => Extract<FromPage, { t: "open" }>;
  onBytes?(bytes: Uint8Array): void;
  onMessage?(message: FromServer): void;
};
const handlers = new Map<number, Handler>();
let nextID = 1;
let socket: WebSocket | undefined;
let retryMs = FIRST_RETRY_MS;
let onTable: (message: FromServer) => void = () => {};

export function connect(listener: (message: FromServer) => void): void {
  onTable = listener;
  open();
}

function open(): void {
  if (signed.value.state !== "in") return;
  const secure = location.protocol === "https:" ? "wss" : "ws";
  const own = new WebSocket(`${secure}://${location.host}/console/live`, PROTOCOL);
  own.binaryType = "arraybuffer";
  socket = own;
  own.onopen = () => own.send(JSON.stringify({ t: "hello", half: half() } satisfies FromPage));
  own.onmessage = ({ data }) => (typeof data === "string" ? take(JSON.parse(data) as FromServer) : takeBytes(new Uint8Array(data as ArrayBuffer)));
  own.onclose = ({ code }) => {
    if (socket !== own) return;
    socket = undefined;
    connection.value = "down";
    if (code === SIGNED_OUT) return ended();
    setTimeout(() => {
      void refresh().then(open);
    }, retryMs);
    retryMs = Math.min(retryMs * 2, MAX_RETRY_MS);
  };
}

export function disconnect(): void {
  const own = socket;
  socket = undefined;
  own?.close();
  handlers.clear();
}

function take(message: FromServer): void {
  if (message.t === "ready") {
    retryMs = FIRST_RETRY_MS;
    connection.value = "up";
    for (const handler of handlers.values()) post(handler.open());
  } else if (message.t === "source") trouble.value = message.isUp ? "" : message.why;
  else if ("id" in message) {
    handlers.get(message.id)?.onMessage?.(message);
    if (message.t === "end") handlers.delete(message.id);
  } else onTable(message);
}

function takeBytes(message: Uint8Array): void {
  const id = new DataView(message.buffer, message.byteOffset).getUint32(0);
  handlers.get(id)?.onBytes?.(message.subarray(4));
}

function post(message: FromPage): void {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
}

export type Channel = { input(data: string): void; resize(cols: number, rows: number): void; close(): void };

/** Opens a channel and reopens it after each reconnect, until it is closed or ends. */
export function channel(openWith: (id: number) => Extract<FromPage, { t: "open" }>, events: Omit<Handler, "open">): Channel {
  const id = nextID++;
  handlers.set(id, { ...events, open: () => openWith(id) });
  if (connection.value === "up") post(openWith(id));
  return {
    input: (data) => post({ t: "input", id, data }),
    resize: (cols, rows) => post({ t: "resize", id, cols, rows }),
    close() {
      handlers.delete(id);
      post({ t: "close", id });
    },
  };
}
