// The native interface for KV events: batches in the log, and dumps of every key.

type Batch = { readonly number: number; readonly payload: Buffer };

export interface NativeEvents {
  /** Returns durable batches that were not taken yet. When the result is empty, a "batches" event announces more. */
  takeBatches(): Batch[];
  /** Returns the batches from a number on, whether or not they were taken. */
  batchesFrom(number: number): Batch[];
  /** Starts a dump of every readable key and ends the previous one. Returns its first batch's number, and how many batches it has. */
  beginDump(): { first: number; batches: number };
  /** Returns the dump's next payloads; empty once all were returned. */
  dumpSome(batches: number): Buffer[];
  /** Ends a dump whose numbers are below `end`. Sends an empty batch after it, unless another batch was sent meanwhile. */
  endDump(end: number): void;
  /** Returns the numbers of the oldest batch that a replay can return, and of the next one. */
  batchRange(): { oldest: number; next: number };
}
