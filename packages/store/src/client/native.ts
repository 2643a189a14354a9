// The client's native functions: checksums of registered memory, and calls to the master that block the thread.
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { fail } from "@svc/contract/failures.ts";

/** One connection to a master. Once the connection broke or a call timed out, every method throws and the connection is unusable. */
export interface NativeCaller {
  /** Returns [error code of the answer's head, body]. */
  call(functionID: number, body: Buffer, timeoutMs: number): [number, Buffer];
  close(): void;
}

export interface NativeClient {
  /** Returns XXH3 (64 bits) over `count` ranges from `first` on; each range has three words: local address, remote address, length. */
  checksum(ranges: BigUint64Array, first: number, count: number): bigint;
  /** Returns true if no other process has locked the open file; the lock then lasts until the file is closed. */
  lockFile(descriptor: number): boolean;
  NativeCaller: new (host: string, port: number, timeoutMs: number) => NativeCaller;
}

let loaded: NativeClient | undefined;

/** @throws HOST_UNSUITABLE where the addon was not built. */
export function nativeClient(): NativeClient {
  if (loaded !== undefined) return loaded;
  const path = process.env["SVC_STORE_NATIVE"] || fileURLToPath(new URL("../../native/build/svc_store.node", import.meta.url));
  try {
    loaded = createRequire(import.meta.url)(path) as NativeClient;
    return loaded;
  } catch (error) {
    return fail("HOST_UNSUITABLE", `the store's native part cannot be loaded from ${path}: ${(error as Error).message}; ./svc setup builds it`, {
      cause: error,
    });
  }
}
