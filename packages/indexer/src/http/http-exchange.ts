// One HTTP exchange as handlers see it: the request, the answer, and the table of handlers.
import type { Readable } from "node:stream";

export type Request = {
  readonly method: string;
  readonly path: string;
  /** The query string, without its question mark. */
  readonly search: string;
  /** The content type without parameters; "" if none was sent. */
  readonly type: string;
  readonly accept: string;
  /** The API key or bearer token of the request. */
  readonly credential: string | undefined;
  /** The client's address. */
  readonly peer: string;
  /** Valid until the handler returns or awaits: the connection reads into it again. */
  readonly body: Buffer;
  /** True if the body has a buffer of its own and stays valid after that. */
  readonly bodyStays: boolean;
  readonly startedMs: number;
};
export type Answer = {
  readonly body: Buffer | string;
  readonly type: string;
  readonly status?: number;
  /** Sent instead of the body, as fast as the client reads it; only for a promised answer. */
  readonly file?: { readonly stream: Readable; readonly size: number };
};
export type Handler = (request: Request) => Answer | Promise<Answer>;
/** Handlers by path, then by method. */
export type Routes = Readonly<Record<string, Readonly<Record<string, Handler>>>>;
