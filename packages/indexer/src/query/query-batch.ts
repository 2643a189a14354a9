// Reads and answers the queries of a batch one after the other.
import { Packr } from "msgpackr";
import { Refusal } from "../http/refusal.ts";
import { BATCH_END, type NativeIndex, UNUSUAL, WANTS_FRESHNESS } from "../index/native.ts";
import type { FreshnessTable } from "./freshness.ts";

/** The bound of all results of a batch together. */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;
const packr = new Packr({ useRecords: false });
const comma = Buffer.from(",");

/** The results of a batch, in the form that the client accepts. */
export class BatchResults {
  readonly #packed: boolean;
  readonly #parts: Buffer[] = [];
  #sizeBytes = 0;

  constructor(packed: boolean) {
    this.#packed = packed;
  }

  /** Adds the result of `answer`, or its error. */
  add(answer: () => Buffer): void {
    const part = this.#partOf(answer);
    this.#sizeBytes += part.length;
    this.#parts.push(part);
  }

  #partOf(answer: () => Buffer): Buffer {
    try {
      if (this.#sizeBytes > MAX_ANSWER_BYTES)
        throw new Refusal("too_large", `the results before this one have more than ${MAX_ANSWER_BYTES} bytes; ask for fewer at once`);
      return answer();
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return this.#packed ? packr.pack(error.body()) : Buffer.from(JSON.stringify(error.body()));
    }
  }

  /** {"results": [...]} */
  whole(): Buffer {
    if (!this.#packed) {
      const parts = this.#parts.flatMap((part, at) => (at === 0 ? [part] : [comma, part]));
      return Buffer.concat([Buffer.from('{"results":['), ...parts, Buffer.from("]}")]);
    }
    const head = Buffer.from("\x81\xa7results\xdd\0\0\0\0", "latin1");
    head.writeUInt32BE(this.#parts.length, head.length - 4);
    return Buffer.concat([head, ...this.#parts]);
  }
}

/** A batch of plain queries, which never become JavaScript values. */
export class PlainBatch {
  readonly results: BatchResults;
  readonly #index: NativeIndex;
  readonly #freshness: FreshnessTable;
  readonly #msgpack: boolean;
  readonly #packed: boolean;
  readonly #position = new Uint32Array(3);

  constructor(index: NativeIndex, freshness: FreshnessTable, msgpack: boolean, packed: boolean) {
    this.#index = index;
    this.#freshness = freshness;
    this.#msgpack = msgpack;
    this.#packed = packed;
    this.results = new BatchResults(packed);
  }

  begins(body: Buffer): boolean {
    return this.#index.scanBatch(body, this.#msgpack, this.#position) === 1;
  }

  /** Answers the next query, and returns whether there may be another; `unusual`: the slow path must read this batch. */
  step(body: Buffer): "more" | "end" | "unusual" {
    const scanned = this.#index.scanNext(body, this.#msgpack, this.#position);
    if (scanned === UNUSUAL) return "unusual";
    if (scanned === BATCH_END) return "end";
    this.results.add(() => this.#index.answerScanned(this.#packed, scanned === WANTS_FRESHNESS ? this.#freshness.now() : null));
    return "more";
  }
}
