// What one connection of the indexer may hold, in bytes and in time.

export const MAX_HEAD_BYTES = 32 * 1024;
export const MAX_HEAD_LINES = 128;
export const HEAD_TOO_LARGE = `the request's head is larger than ${MAX_HEAD_BYTES} bytes`;
/** A connection that says nothing for this long ends. */
export const IDLE_MS = 120_000;
/** A head, and a body, must be whole this long after its first byte. */
export const HEAD_MS = 10_000;
export const BODY_MS = 60_000;
/**
 * Of a refused connection, for its answer to be read: what its client still sends is thrown away for so long, up to so much. Closed
 * on bytes that nobody read, it would be reset, and its answer lost.
 */
export const LINGER_MS = 2_000;
export const MAX_DRAINED_BYTES = 64 * 1024 * 1024;
/** Between requests a connection keeps a body buffer up to this size. */
export const KEPT_BUFFER_BYTES = 64 * 1024;
/** Up to this size head and body go out as one piece of text, which the kernel takes without a buffer of its own. */
export const TEXT_BYTES = 64 * 1024;
