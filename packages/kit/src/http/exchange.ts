// One HTTP exchange as a server's handlers see it: the request, the answer, and the options of the server.
import { STATUS_CODES } from "node:http";
import type { Duplex, Readable } from "node:stream";

export type Request = {
  readonly method: string;
  /** The path with its query string. */
  readonly target: string;
  readonly authorization: string | undefined;
  /** The values of the headers in `HttpOptions.headers`, in that order. */
  readonly headers: readonly (string | undefined)[];
  /** The client's address. */
  readonly peer: string;
  readonly body: Buffer;
  /** False if the body is a view of the connection's read buffer, which is valid only until the handler returns or awaits. */
  readonly bodyStays: boolean;
  /** When the head was complete, on the clock of `performance`. */
  readonly startedMs: number;
};

export type Answer = {
  /** The default is 200. */
  readonly status?: number;
  readonly type: string;
  readonly body: Buffer | string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent instead of the body, as fast as the client reads it; without a size, the end of the connection marks its end. */
  readonly stream?: { readonly source: Readable; readonly sizeBytes?: number };
};

/** A connection that was decrypted before this server got it. */
export type Carried = {
  /** Set if the client has no certificate of the deployment: it gets this refusal but on open paths. */
  readonly stranger?: string;
  /** Ends the connection such that the client notices. */
  readonly reset: () => void;
};

export type HttpOptions = {
  readonly maxBodyBytes: number;
  /** The setting that limits the body, for the message. */
  readonly bodySetting: string;
  /** Bounds large bodies and answers over all connections; more wait. */
  readonly maxBufferedBytes: number;
  /** At this number, a new connection replaces an old one: of the peer with the most connections, the one whose client was silent longest. */
  readonly maxConnections: number;
  /** Lower-case names of the headers that `Request.headers` has, besides Authorization. */
  readonly headers?: readonly string[];
  /** Passes bodies to the handler as views of the read buffer, without a copy. */
  readonly readsInPlace?: boolean;
  /** Closes the connection after every answer. */
  readonly closesEach?: boolean;
  /** Another server of this process continues a connection with its first request at or below this path, and gets that request whole. */
  readonly handsOver?: { readonly path: string; take(connection: Duplex): void } | undefined;
  /** Says which requests are answered to clients without a certificate of the deployment; absent: none. */
  readonly isOpen?: (method: string, target: string) => boolean;
  answer(request: Request): Answer | Promise<Answer>;
  /** Returns the answer to a failed request, or, without `request`, to one that could not be read. */
  refuse(error: unknown, request?: Request): Answer;
  observe(request: Request | undefined, status: number, seconds: number): void;
};

/** Without a `length`, the end of the connection marks that of the body. */
export function headOf({ type, headers }: Answer, status: number, keepAlive: boolean, length: number | undefined): string {
  let lines = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? "Unknown"}\r\nContent-Type: ${type}\r\n`;
  if (length !== undefined) lines += `Content-Length: ${length}\r\n`;
  for (const name in headers) lines += `${name}: ${headers[name]}\r\n`;
  return `${lines}${keepAlive ? "" : "Connection: close\r\n"}\r\n`;
}

/** True for `path` itself, with or without a query string, and for all paths below it. */
export function isBelow(target: string, path: string | undefined): boolean {
  return path !== undefined && target.startsWith(path) && (target.length === path.length || "/?".includes(target.charAt(path.length)));
}

/** True for a client without a certificate of the deployment, on a path that needs one. */
export const isClosedTo = (carried: Carried | undefined, { method, target }: Pick<Request, "method" | "target">, { isOpen }: HttpOptions): boolean =>
  carried?.stranger !== undefined && isOpen?.(method, target) !== true;
