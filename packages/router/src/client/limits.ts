// The limits of a client's connection; none of them limits how long an answer lasts.
import { proxyLimits } from "@svc/kit/proxy/limits.ts";

export type ClientLimits = typeof clientLimits;

export const clientLimits = {
  headBytes: proxyLimits.headBytes,
  headLines: proxyLimits.headLines,
  /** Time from the first byte of a head to its last. */
  headMs: 15_000,
  /** Time from a request's head to the last byte of its body. */
  bodyMs: 300_000,
  /** Time that a connection may stay without a request, or without taking a byte of its last answer. */
  idleMs: 120_000,
  /** After the last answer, further bytes are discarded for this long, since a reset might destroy the answer. */
  lingerMs: 2_000,
  /** A client that has not taken this much of an answer gets the next one later. */
  unsentBytes: 64 * 1024,
  unfinishedHeads: proxyLimits.unfinishedHeads,
  unfinishedHeadsPerPeer: proxyLimits.unfinishedHeadsPerPeer,
  connections: 65_536,
  /** Answers under way at a stop may end within this. */
  drainMs: 8_000,
};
