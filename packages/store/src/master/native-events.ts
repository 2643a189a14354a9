// The part of the native seam that KV events go through: batches that the log holds, and dumps of every key.

export interface NativeEvents {
  /** [number, payload, ...]: durable batches of KV events that were not taken yet; once it is empty, a "batches" event follows when there are more. */
  takeBatches(): (number | Buffer)[];
  /** The same from a number on, taken before or not. */
  batchesFrom(number: number): (number | Buffer)[];
  /** [its first batch's number, batches]: every key that can be read; ends the dump before. */
  beginDump(): [number, number];
  /** The dump's next payloads; none once all were made. */
  dumpSome(batches: number): Buffer[];
  /** Behind a dump that ends before this number: an empty batch goes out, unless another one did meanwhile. */
  endDump(end: number): void;
  /** [the oldest batch that a replay can bring, the next one's number] */
  batchRange(): [number, number];
}
