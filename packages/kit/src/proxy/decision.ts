// What is decided for a request before it goes on: where it goes, what is answered here, or what it waits for.
import type { Answer } from "./answer.ts";
import type { Target } from "./target.ts";

/** A client as whoever decides on its requests sees it. */
export interface RoutedClient {
  /** Its address. */
  readonly peer: string;
  /** What upstreams learn of it: header lines. */
  readonly forwarded: string;
  /** How often this request was put back to be routed anew. */
  readonly rounds: number;
  /** Where this request went last, which said that what it is for has moved. */
  readonly movedFrom: Target | undefined;
  /** Ends a wait: the request is routed anew, or answered with `verdict`. */
  proceed(verdict?: Answer): void;
}

/** Where a request goes: the target, and its head as the target gets it. `kind` is the observer's. */
export type Forwarding = { readonly target: Target; readonly text: string; readonly upgrade: boolean; readonly kind: number };

/** What a request waits for whose target must wake first. Whoever decides so calls `proceed` of the client later. */
export interface Wait {
  /** As of a Forwarding. */
  readonly kind: number;
  /** This client is gone, or waits no longer. */
  leave(client: RoutedClient): void;
  /** Sent to a request that has waited as long as the bound allows. */
  tooLate(): Answer;
}

export type Decision = Forwarding | Answer | Wait;
