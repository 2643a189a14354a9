// The limits of one connection to an HTTP server, in bytes, requests and time.

export const MAX_HEAD_BYTES = 32 * 1024;
export const MAX_HEAD_LINES = 128;
/** A connection on which nothing moves for this long is closed, unless the server works on its request. */
export const IDLE_MS = 120_000;
/** A head must be complete this long after its first byte. */
export const HEAD_MS = 10_000;
/** A body must be complete within BODY_MS, plus one millisecond for every BODY_BYTES_PER_MS bytes that have arrived. */
export const BODY_MS = 60_000;
export const BODY_BYTES_PER_MS = 64;
/**
 * A connection that ends stays open for this long, and up to this many bytes are discarded, so that the client can read the answer: closing a
 * socket with unread bytes resets it, and the answer would be lost.
 */
export const LINGER_MS = 2_000;
export const MAX_DRAINED_BYTES = 64 * 1024 * 1024;
/** Up to this size, head and body are sent as one string, which the kernel takes without a separate buffer. */
export const TEXT_BYTES = 64 * 1024;
/** The number of pipelined requests that are answered at once; further ones continue in later ticks, so that other connections are served. */
export const MAX_PIPELINED_AT_ONCE = 32;
export const MAX_PIPELINED_PER_TICK = 16;
export const MAX_UNFINISHED_HEADS = 4096;
export const MAX_UNFINISHED_HEADS_PER_PEER = 2048;
/** The time that pending requests have to finish when the server closes. */
export const DRAIN_MS = 4_000;
/** The interval of the check for connections that make no progress. */
export const SWEEP_MS = 250;
