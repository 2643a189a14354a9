// One exchange over HTTP as handlers see it: what was asked, what is answered, and which handler answers what.
import type { Readable } from "node:stream";

export type Request = {
  readonly method: string;
  readonly path: string;
  /** The query string, without its mark. */
  readonly search: string;
  /** The content type without parameters; "" when none was sent. */
  readonly type: string;
  readonly accept: string;
  /** The API key or bearer token that came with it. */
  readonly credential: string | undefined;
  /** The client's address. */
  readonly peer: string;
  /** Valid until the handler returns or waits: the connection reads into it again. */
  readonly body: Buffer;
  /** The body stays valid after that, too: it has a buffer of its own. */
  readonly bodyStays: boolean;
  readonly startedMs: number;
};
export type Answer = {
  readonly body: Buffer | string;
  readonly type: string;
  readonly status?: number;
  /** Sent instead of the body, as fast as the client takes it; of a promised answer only. */
  readonly file?: { readonly stream: Readable; readonly size: number };
};
export type Handler = (request: Request) => Answer | Promise<Answer>;
/** By path, then by method. */
export type Routes = Readonly<Record<string, Readonly<Record<string, Handler>>>>;
