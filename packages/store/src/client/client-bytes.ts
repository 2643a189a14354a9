// Storing and reading objects, with promises or synchronously: the part of the client that moves bytes.
import { Failure } from "@svc/contract/failures.ts";
import { asView, type Memory } from "@svc/transfer/memory.ts";
import { scopedKey } from "../rpc/scope.ts";
import { toWire } from "../rpc/text.ts";
import { FastPath } from "./fast-path.ts";
import type { Flow } from "./flow.ts";
import { type Destination, type GetOutcome, getAll } from "./get.ts";
import type { Lent } from "./memory.ts";
import type { BytesParts } from "./parts.ts";
import { type PutOutcome, putAll } from "./put.ts";
import { type PutOptions, type PutPolicy, putPolicyOf } from "./put-policy.ts";

/** One piece of memory, or several whose bytes are concatenated. */
export type Pieces = Memory | readonly Memory[];
export type PutEntry = { readonly key: string; readonly value: Pieces };
export type GetEntry = { readonly key: string; readonly into: Pieces };
/** The bytes that were read; undefined for a miss; a Failure where the read failed. */
export type GetResult = Buffer | undefined | Failure;

const NONE: PutOptions = {};

/**
 * Values are immutable: `put` of an existing key changes nothing and returns false; `upsert` replaces the value. Failures carry the store's number in
 * `details.storeCode`: CAPACITY_EXHAUSTED (no capacity, or a quota), STORE_CONFLICT (leased, being copied), INVALID_REQUEST, SERVER_UNREACHABLE,
 * TIMED_OUT. Batches return one outcome for each entry and never throw for an entry. Registered memory is transferred without a copy. The synchronous
 * forms block the thread and are the fastest for sequential calls.
 */
export class ClientBytes {
  protected readonly parts: BytesParts;
  readonly #fastPath: FastPath;
  readonly #plain: PutPolicy;

  constructor(parts: BytesParts) {
    this.parts = parts;
    this.#fastPath = new FastPath(parts);
    this.#plain = putPolicyOf({}, parts.hostID);
  }

  /** Returns true if the value was stored, and false if the key existed already. */
  async put(key: string, value: Pieces, options: PutOptions = {}): Promise<boolean> {
    return first(await this.putBatch([{ key, value }], options));
  }
  putSync(key: string, value: Pieces, options: PutOptions = NONE): boolean {
    const isPlain = !Array.isArray(value) && options.group === undefined;
    const done = isPlain
      ? this.#fastPath.put(this.wireKey(key), value as Memory, options === NONE ? this.#plain : putPolicyOf(options, this.parts.hostID))
      : undefined;
    if (typeof done === "boolean") return done;
    return first(this.parts.runner.runSync(this.#put([{ key, value }], options, false, done === "unsure")));
  }
  putBatch(entries: readonly PutEntry[], options: PutOptions = {}): Promise<PutOutcome[]> {
    return this.parts.runner.run(this.#put(entries, options, false));
  }
  putBatchSync(entries: readonly PutEntry[], options: PutOptions = {}): PutOutcome[] {
    return this.parts.runner.runSync(this.#put(entries, options, false));
  }

  /** Stores the bytes whether or not the key exists. Readers that know the old location may read the old bytes until their lease ends. */
  async upsert(key: string, value: Pieces, options: PutOptions = {}): Promise<void> {
    first(await this.upsertBatch([{ key, value }], options));
  }
  upsertSync(key: string, value: Pieces, options: PutOptions = {}): void {
    first(this.parts.runner.runSync(this.#put([{ key, value }], options, true)));
  }
  upsertBatch(entries: readonly PutEntry[], options: PutOptions = {}): Promise<PutOutcome[]> {
    return this.parts.runner.run(this.#put(entries, options, true));
  }

  /** Returns a copy of the bytes; undefined for a miss. */
  async get(key: string): Promise<Buffer | undefined> {
    return first(await this.getBatch([key]));
  }
  getSync(key: string): Buffer | undefined {
    return first(this.getBatchSync([key]));
  }
  getBatch(keys: readonly string[]): Promise<GetResult[]> {
    return this.parts.runner.run(this.#get(keys));
  }
  getBatchSync(keys: readonly string[]): GetResult[] {
    return this.parts.runner.runSync(this.#get(keys));
  }

  /** Reads into the caller's memory. Returns the number of bytes; undefined for a miss. @throws INVALID_REQUEST when the value does not fit. */
  async getInto(key: string, into: Pieces): Promise<number | undefined> {
    return first(await this.getIntoBatch([{ key, into }]));
  }
  getIntoSync(key: string, into: Pieces): number | undefined {
    const read = Array.isArray(into) ? undefined : this.#fastPath.read(this.wireKey(key), into as Memory);
    return read ?? first(this.getIntoBatchSync([{ key, into }]));
  }
  getIntoBatch(entries: readonly GetEntry[]): Promise<GetOutcome[]> {
    return this.parts.runner.run(this.#getInto(entries));
  }
  getIntoBatchSync(entries: readonly GetEntry[]): GetOutcome[] {
    return this.parts.runner.runSync(this.#getInto(entries));
  }

  /** Returns the key with its domain and object set, as the master knows it. */
  protected wireKey(key: string): string {
    return scopedKey(this.parts.scope, toWire(key));
  }

  *#put(entries: readonly PutEntry[], options: PutOptions, isReplacing: boolean, isUnsure = false): Flow<PutOutcome[]> {
    const { memory, putParts, hostID, metrics } = this.parts;
    const lent: Lent[] = [];
    try {
      const items = entries.map(({ key, value }) => {
        const pieces = piecesOf(value);
        const each = memory.forReading(pieces);
        lent.push(each);
        return { key: this.wireKey(key), parts: each.parts, sizeBytes: each.parts.reduce((sum, part) => sum + part.sizeBytes, 0) };
      });
      const request = { policy: putPolicyOf(options, hostID), group: options.group === undefined ? undefined : toWire(options.group), isReplacing, isUnsure };
      const outcomes = yield* putAll(putParts, items, request);
      metrics.put(items, outcomes);
      return outcomes;
    } finally {
      for (const each of lent) each.end(true);
    }
  }

  *#getInto(entries: readonly GetEntry[]): Flow<GetOutcome[]> {
    const { memory, getParts, metrics } = this.parts;
    const lent = new Map<number, Lent>();
    let outcomes: GetOutcome[] | undefined;
    try {
      const wanted = entries.map(({ key, into }, index): Destination => {
        const pieces = piecesOf(into);
        const givenBytes = pieces.reduce((sum, piece) => sum + asView(piece).byteLength, 0);
        return {
          key: this.wireKey(key),
          memoryFor(sizeBytes) {
            if (sizeBytes > givenBytes) return undefined;
            const each = lent.get(index) ?? memory.forWriting(pieces);
            lent.set(index, each);
            return each.parts;
          },
        };
      });
      outcomes = yield* getAll(getParts, wanted);
      metrics.got(outcomes);
      return outcomes;
    } finally {
      for (const [index, each] of lent) each.end(typeof outcomes?.[index] === "number");
    }
  }

  *#get(keys: readonly string[]): Flow<GetResult[]> {
    const { memory, getParts, metrics } = this.parts;
    const found = new Map<number, { readonly bytes: Buffer; readonly lent: Lent }>();
    let outcomes: GetOutcome[] | undefined;
    try {
      const wanted = keys.map(
        (key, index): Destination => ({
          key: this.wireKey(key),
          memoryFor(sizeBytes) {
            const known = found.get(index);
            if (known?.bytes.length === sizeBytes) return known.lent.parts;
            known?.lent.end(false);
            const bytes = Buffer.allocUnsafeSlow(sizeBytes);
            const lent = memory.forWriting([bytes]);
            found.set(index, { bytes, lent });
            return lent.parts;
          },
        }),
      );
      outcomes = yield* getAll(getParts, wanted);
      metrics.got(outcomes);
    } finally {
      for (const [index, { lent }] of found) lent.end(typeof outcomes?.[index] === "number");
    }
    return (outcomes ?? []).map((outcome, index) => (typeof outcome === "number" ? found.get(index)?.bytes : outcome));
  }
}

const piecesOf = (pieces: Pieces): readonly Memory[] => (Array.isArray(pieces) ? pieces : [pieces as Memory]);

function first<T>(outcomes: readonly T[]): Exclude<T, Failure> {
  const outcome = outcomes[0] as T;
  if (outcome instanceof Failure) throw outcome;
  return outcome as Exclude<T, Failure>;
}
