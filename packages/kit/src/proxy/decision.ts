// The decision on a request before it is forwarded: its target, an answer, or a wait.
import type { Answer } from "./answer.ts";
import type { Carried } from "./carried.ts";
import type { Target } from "./target.ts";

/** The view of a client that the router gets. */
export interface RoutedClient {
  /** The client's address. */
  readonly peer: string;
  /** Header lines that inform upstreams about the client. */
  readonly forwarded: string;
  /** Set if the client's connection is encrypted, or is a part of this process that speaks for such a client. */
  readonly carried: Carried | undefined;
  /** Counts how often this request was put back to be routed again. */
  readonly rounds: number;
  /** The last target of this request, if it answered that the sandbox has moved. */
  readonly movedFrom: Target | undefined;
  /** Ends a wait: the request is routed again, or answered with `verdict`. */
  proceed(verdict?: Answer): void;
}

/** The target of a request, and its head as sent to the target. `kind` is the observer's. */
export type Forwarding = {
  readonly target: Target;
  readonly text: string;
  readonly upgrade: boolean;
  readonly kind: number;
  /** The answer that opens a raw connection: once the target is dialled, the client gets it, and the request itself is not sent. */
  readonly tunnel?: string;
  /** Header lines, each ended by CRLF, that the final response gets in addition. */
  readonly addedLines?: string;
};

/** A wait for a target that must wake first. The router that returns it calls `proceed` of the client later. */
export interface Wait {
  /** The same number as in a Forwarding. */
  readonly kind: number;
  /** Called when this client is gone or stops waiting. */
  leave(client: RoutedClient): void;
  /** Returns the answer to a request that has waited as long as the bound allows. */
  tooLate(): Answer;
}

export type Decision = Forwarding | Answer | Wait;
