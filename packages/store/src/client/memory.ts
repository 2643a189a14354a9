// Makes callers' memory accessible to the transfer engine: registered by them, copied through a registered area, or registered for one call.
import { Failure, fail } from "@svc/contract/failures.ts";
import type { TransferEngine } from "@svc/transfer/engine.ts";
import { alloc, asView, type Memory } from "@svc/transfer/memory.ts";

/** A range of registered memory. */
export type Part = { readonly address: bigint; readonly sizeBytes: number };

/** Memory that is registered for one operation; `end` releases it. */
export type Lent = { readonly parts: readonly Part[]; end(isWritten: boolean): void };

type Registered = { readonly view: ArrayBufferView; readonly address: bigint };

/** For larger ranges a registration costs less than a copy. */
const COPY_BYTES = 256 << 10;
const LEAST_BLOCK = 4096;
const LOCAL_ONLY = { remoteAccessible: false, updateMetadata: false } as const;

export class LocalMemory {
  readonly #engine: TransferEngine;
  readonly #area: Uint8Array<ArrayBuffer>;
  readonly #start: bigint;
  readonly #registered: Registered[] = [];
  /** Free blocks of the area by size, each a power of two; the area from `#next` on was never used. */
  readonly #free = new Map<number, number[]>();
  #next = 0;

  private constructor(engine: TransferEngine, area: Uint8Array<ArrayBuffer>, start: bigint) {
    this.#engine = engine;
    this.#area = area;
    this.#start = start;
  }

  static async open(engine: TransferEngine, areaBytes: number): Promise<LocalMemory> {
    const area = alloc(Math.max(areaBytes, COPY_BYTES));
    return new LocalMemory(engine, area, await engine.registerLocalMemory(area, LOCAL_ONLY));
  }

  /** Registers memory whose bytes are then transferred without a copy. @throws MEMORY_OVERLAPS, INVALID_REQUEST. */
  async register(memory: Memory): Promise<void> {
    const view = asView(memory);
    this.#registered.push({ view, address: await this.#engine.registerLocalMemory(view, LOCAL_ONLY) });
  }

  /** @throws MEMORY_NOT_REGISTERED; TRANSFER_BUSY while a transfer uses it. */
  async unregister(memory: Memory): Promise<void> {
    const view = asView(memory);
    const at = this.#registered.findIndex((each) => each.view === view || (each.view.buffer === view.buffer && each.view.byteOffset === view.byteOffset));
    const found = this.#registered[at] ?? fail("MEMORY_NOT_REGISTERED", "this memory was not registered with the store's client");
    await this.#engine.unregisterLocalMemory(found.address);
    this.#registered.splice(this.#registered.indexOf(found), 1);
  }

  /** Returns the range of a view that lies entirely in registered memory. */
  partOf(memory: Memory): Part | undefined {
    const view = asView(memory);
    for (const { view: whole, address } of this.#registered) {
      if (whole.buffer !== view.buffer) continue;
      const from = view.byteOffset - whole.byteOffset;
      if (from >= 0 && from + view.byteLength <= whole.byteLength) return { address: address + BigInt(from), sizeBytes: view.byteLength };
    }
    return undefined;
  }

  /** Lends memory whose bytes a put reads. */
  forReading(list: readonly Memory[]): Lent {
    return this.#lend(list, true);
  }

  /** Lends memory that a get writes; it contains the bytes after `end(true)`. */
  forWriting(list: readonly Memory[]): Lent {
    return this.#lend(list, false);
  }

  async close(): Promise<void> {
    await this.#engine.unregisterLocalMemory(this.#start).catch(() => undefined);
    for (const { address } of this.#registered) await this.#engine.unregisterLocalMemory(address).catch(() => undefined);
  }

  #lend(list: readonly Memory[], isRead: boolean): Lent {
    if (list.length === 1) return this.#lendOne(list[0] as Memory, isRead);
    const lent: Lent[] = [];
    const end = (isWritten: boolean) => {
      for (const each of lent) each.end(isWritten);
    };
    try {
      for (const memory of list) lent.push(this.#lendOne(memory, isRead));
    } catch (error) {
      end(false);
      throw error;
    }
    return { parts: lent.flatMap(({ parts }) => parts), end };
  }

  #lendOne(memory: Memory, isRead: boolean): Lent {
    const known = this.partOf(memory);
    if (known !== undefined) return { parts: [known], end: nothing };
    const view = asView(memory);
    const bytes = new Uint8Array(view.buffer as ArrayBuffer, view.byteOffset, view.byteLength);
    const block = bytes.byteLength <= COPY_BYTES ? this.#takeBlock(bytes.byteLength) : undefined;
    return block === undefined ? this.#lendWhole(bytes) : this.#lendCopy(bytes, block, isRead);
  }

  #lendCopy(bytes: Uint8Array, block: { at: number; size: number }, isRead: boolean): Lent {
    const copy = this.#area.subarray(block.at, block.at + bytes.byteLength);
    if (isRead) copy.set(bytes);
    return {
      parts: [{ address: this.#start + BigInt(block.at), sizeBytes: bytes.byteLength }],
      end: (isWritten) => {
        if (isWritten && !isRead) bytes.set(copy);
        this.#giveBlock(block);
      },
    };
  }

  #lendWhole(bytes: Uint8Array): Lent {
    const address = this.#engine.registerLocalMemorySync(bytes, LOCAL_ONLY);
    return {
      parts: [{ address, sizeBytes: bytes.byteLength }],
      end: () => {
        try {
          this.#engine.unregisterLocalMemorySync(address);
        } catch (error) {
          // The memory stays registered, and referenced, until the engine ends.
          if (!(error instanceof Failure)) throw error;
        }
      },
    };
  }

  #takeBlock(bytes: number): { at: number; size: number } | undefined {
    const size = Math.max(LEAST_BLOCK, 2 ** Math.ceil(Math.log2(Math.max(1, bytes))));
    const free = this.#free.get(size)?.pop();
    if (free !== undefined) return { at: free, size };
    if (this.#next + size > this.#area.byteLength) return undefined;
    const at = this.#next;
    this.#next += size;
    return { at, size };
  }

  #giveBlock({ at, size }: { at: number; size: number }): void {
    const list = this.#free.get(size);
    if (list === undefined) this.#free.set(size, [at]);
    else list.push(at);
  }
}

const nothing = (): void => undefined;
