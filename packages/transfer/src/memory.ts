// Memory for transfers: shared allocations, and the checks of registered typed arrays.
import { Failure, fail } from "@svc/contract/failures.ts";
import { native } from "./native.ts";

export type Memory = ArrayBuffer | SharedArrayBuffer | ArrayBufferView;

/**
 * Allocates zeroed memory that engines on this host can map instead of copying through a socket.
 * @throws TRANSFER_FAILED if there is not enough memory.
 */
export function alloc(sizeBytes: number): Uint8Array<ArrayBuffer> {
  return guarded(() => new Uint8Array(native().alloc(checkedSize(sizeBytes))));
}

/**
 * Opens a named shared memory object; `create` creates or grows it.
 * @throws TRANSFER_FAILED if it does not exist, or is too short, and `create` is false.
 */
export function openShm(name: string, sizeBytes: number, create = false): Uint8Array<ArrayBuffer> {
  return guarded(() => new Uint8Array(native().openShm(name, checkedSize(sizeBytes), create)));
}

/** Removes the name; processes that have the object open keep it. */
export function unlinkShm(name: string): boolean {
  return native().unlinkShm(name) === 0;
}

export function asView(memory: Memory): ArrayBufferView {
  return ArrayBuffer.isView(memory) ? memory : new Uint8Array(memory);
}

/** Returns the address of a view's first byte; 0n if its buffer was transferred to another thread. */
export function addressOf(memory: Memory): bigint {
  return native().addressOf(asView(memory));
}

function checkedSize(sizeBytes: number): number {
  if (Number.isSafeInteger(sizeBytes) && sizeBytes > 0) return sizeBytes;
  return fail("INVALID_REQUEST", `sizeBytes: expected a positive whole number, got ${sizeBytes}`);
}

function guarded<T>(make: () => T): T {
  try {
    return make();
  } catch (error) {
    if (error instanceof Failure) throw error;
    return fail("TRANSFER_FAILED", (error as Error).message, { cause: error });
  }
}

/** The typed arrays registered with one engine, kept alive and checked before each use. */
export class RegisteredViews {
  readonly #views = new Map<bigint, { view: ArrayBufferView; byteLength: number }>();

  /** @throws INVALID_REQUEST for memory that can move or shrink. */
  check(memory: Memory): { view: ArrayBufferView; address: bigint; byteLength: number } {
    const view = asView(memory);
    const buffer = view.buffer as { resizable?: boolean; growable?: boolean };
    if (buffer.resizable === true || buffer.growable === true)
      fail("INVALID_REQUEST", "a resizable buffer cannot be registered: its length may change under a transfer");
    if (view.byteLength === 0) fail("INVALID_REQUEST", "the memory is empty, or was transferred to another thread");
    return { view, address: addressOf(view), byteLength: view.byteLength };
  }

  keep(address: bigint, view: ArrayBufferView): void {
    this.#views.set(address, { view, byteLength: view.byteLength });
  }

  release(address: bigint): void {
    this.#views.delete(address);
  }

  clear(): void {
    this.#views.clear();
  }

  /** @throws MEMORY_NOT_REGISTERED if a registered view lost its memory because its buffer was transferred to another thread. */
  recheck(): void {
    for (const [address, { view, byteLength }] of this.#views)
      if (view.byteLength !== byteLength)
        fail(
          "MEMORY_NOT_REGISTERED",
          `the memory registered at 0x${address.toString(16)} was transferred to another thread; unregister it, and register the buffer that has it now`,
        );
  }
}
