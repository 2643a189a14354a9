// The native interface for KV events: batches in the log, and dumps of every key.

export interface NativeEvents {
  /** Returns [number, payload, ...] of durable batches that were not taken yet. When the result is empty, a "batches" event announces more. */
  takeBatches(): (number | Buffer)[];
  /** Returns the batches from a number on, whether or not they were taken. */
  batchesFrom(number: number): (number | Buffer)[];
  /** Starts a dump of every readable key and ends the previous one. Returns [its first batch's number, batches]. */
  beginDump(): [number, number];
  /** Returns the dump's next payloads; empty once all were returned. */
  dumpSome(batches: number): Buffer[];
  /** Ends a dump whose numbers are below `end`. Sends an empty batch after it, unless another batch was sent meanwhile. */
  endDump(end: number): void;
  /** Returns [the oldest batch that a replay can return, the next batch's number]. */
  batchRange(): [number, number];
}
