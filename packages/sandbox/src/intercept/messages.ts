// The messages between the node and the thread that opens TLS for hosts with rules.

import type { DialledProxy } from "../egress/socks5.ts";

export type InterceptWorkerData = {
  readonly address: string;
  /** Tried first, so that a restart keeps it. */
  readonly port: number;
  /** The same for connections of sandboxes with an egress proxy. */
  readonly tunnelPort: number;
  /** Authorities in PEM that the host's own store lacks. */
  readonly authorities: string;
};

/**
 * The way of a connection under a name: its requests get headers (`open`), it passes as it is, or it is refused. `addresses` are those that the name
 * resolved to.
 */
export type Route =
  | { readonly verdict: "open" | "pass"; readonly addresses: readonly string[]; readonly proxy?: DialledProxy }
  | { readonly verdict: "refuse"; readonly address: string; readonly why: string };

/** A connection of a sandbox with an egress proxy. `name` is absent until the node needs it, and null if the connection names no host. */
export type TunnelKey = { readonly sandbox: string; readonly address: string; readonly port: number; readonly name: string | null | undefined };

/** Where such a connection goes: `host` is a name or an address, which the proxy dials; `name` asks for the name that the client's first bytes carry. */
export type Tunnel =
  | { readonly verdict: "dial"; readonly proxy: DialledProxy; readonly host: string }
  | { readonly verdict: "name" }
  | { readonly verdict: "refuse"; readonly why: string };

export type Certificate = { readonly certificate: string; readonly key: string; readonly untilMs: number };
export type Headers = { readonly headers: readonly (readonly [string, string])[]; readonly untilMs: number };

/** Questions of the thread, and the type of each answer. The sandbox is named by its address. */
export type Questions = {
  route: { readonly ask: { readonly sandbox: string; readonly name: string | undefined }; readonly answer: Route };
  tunnel: { readonly ask: TunnelKey; readonly answer: Tunnel };
  certificate: { readonly ask: { readonly name: string }; readonly answer: Certificate };
  headers: { readonly ask: { readonly sandbox: string; readonly name: string }; readonly answer: Headers };
};
export type QuestionKind = keyof Questions;

export type ToIntercept =
  | { readonly say: "answer"; readonly call: number; readonly answer: unknown }
  | { readonly say: "problem"; readonly call: number; readonly problem: string }
  /** The sandbox's policy was replaced: every connection of it is checked again before `call` is answered. */
  | { readonly say: "check"; readonly call: number; readonly sandbox: string }
  | { readonly say: "forget"; readonly sandbox: string }
  /** A secret changed: values that were read before are not used again. */
  | { readonly say: "changed" }
  | { readonly say: "close" };

/** A refused or broken connection, for the sandbox's network log. */
export type Note = {
  readonly sandbox: string;
  readonly name: string | undefined;
  readonly address: string;
  /** Absent for HTTPS to a host with rules. */
  readonly port?: number;
  readonly why: string;
};

export type FromIntercept =
  | { readonly say: "ready"; readonly port: number; readonly tunnelPort: number }
  | { readonly say: "checked"; readonly call: number }
  | { readonly say: "note"; readonly note: Note }
  | { [Kind in QuestionKind]: { readonly say: "question"; readonly call: number; readonly kind: Kind; readonly ask: Questions[Kind]["ask"] } }[QuestionKind];

export const HTTPS_PORT = 443;
