// The client's native seam: checksums of registered memory, and calls of the master that hold the thread until they are answered.
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { fail } from "@svc/contract/failures.ts";

/** One connection to a master. Every method throws once the connection broke or the time is over; then it is of no more use. */
export interface NativeCaller {
  /** [error of the answer's head, body] */
  call(functionID: number, body: Buffer, timeoutMs: number): [number, Buffer];
  close(): void;
}

export interface NativeClient {
  /** XXH3 (64 bits) of the bytes of `count` ranges from `first` on; three words a range: local address, remote address, length. */
  checksum(ranges: BigUint64Array, first: number, count: number): bigint;
  /** Whether no other process has that open file locked; this one has it then, until it closes the file. */
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
