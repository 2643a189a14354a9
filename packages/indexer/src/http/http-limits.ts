// The limits of one connection of the indexer, in bytes and in time.

export const MAX_HEAD_BYTES = 32 * 1024;
export const MAX_HEAD_LINES = 128;
export const HEAD_TOO_LARGE = `the request's head is larger than ${MAX_HEAD_BYTES} bytes`;
/** A connection that sends nothing for this long is closed. */
export const IDLE_MS = 120_000;
/** A head, and a body, must be complete this long after its first byte. */
export const HEAD_MS = 10_000;
export const BODY_MS = 60_000;
/**
 * A refused connection stays open for this long, and up to this many bytes are discarded, so that the client can read the answer: closing a
 * socket with unread bytes resets it, and the answer would be lost.
 */
export const LINGER_MS = 2_000;
export const MAX_DRAINED_BYTES = 64 * 1024 * 1024;
/** Between requests a connection keeps a body buffer of up to this size. */
export const KEPT_BUFFER_BYTES = 64 * 1024;
/** Up to this size, head and body are sent as one string, which the kernel takes without a separate buffer. */
export const TEXT_BYTES = 64 * 1024;
