// The client's native functions: checksums of registered memory, and calls to the master that block the thread.
import { loadAddon } from "../rpc/native-addon.ts";

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

/** @throws HOST_UNSUITABLE where the addon was not built. */
export const nativeClient = (): NativeClient => loadAddon<NativeClient>();
