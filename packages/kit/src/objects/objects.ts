// Object storage as svc uses it: small objects by key, each read and written whole, in a directory or on an S3-compatible server.
import { fail } from "@svc/contract/failures.ts";

export type ObjectInfo = { readonly key: string; readonly sizeBytes: number; readonly modifiedAtMs: number };

/** A range of an object's bytes; `end` is exclusive. */
export type ByteRange = { readonly start: number; readonly end: number };

const MAX_KEY_BYTES = 900;
const segment = /^[A-Za-z0-9_~-][A-Za-z0-9_.~-]*$/;

/** Every method retries with growing delays, up to a limit, and then @throws OBJECTS_UNAVAILABLE. */
export interface Objects {
  /** The location, for messages. */
  readonly url: string;
  /**
   * Stores the object, which replaces any earlier one only when it is complete. Callers split large data, so that each part can be
   * buffered, resent and verified whole. `sha256` is the body's hash in hex, if known. @throws DISK_FULL.
   */
  put(key: string, body: Buffer, sha256?: string): Promise<void>;
  /** Returns undefined if the object does not exist. @throws PAYLOAD_TOO_LARGE if it exceeds `maxBytes`, without reading further. */
  get(key: string, maxBytes: number, range?: ByteRange): Promise<Buffer | undefined>;
  head(key: string): Promise<ObjectInfo | undefined>;
  /**
   * Lists all objects whose key begins with `prefix`, in unspecified order; objects that appear or vanish meanwhile may be missing or
   * included.
   */
  list(prefix: string): AsyncGenerator<ObjectInfo>;
  /** Succeeds if the object does not exist. */
  delete(key: string): Promise<void>;
  close(): Promise<void>;
}

/** Keys consist of plain characters between slashes, so that they mean the same in a directory, a URL and a listing. */
export function checkKey(key: string): string {
  if (key.length <= MAX_KEY_BYTES && key.split("/").every((each) => segment.test(each))) return key;
  return fail("INTERNAL", `${JSON.stringify(key.slice(0, 100))} cannot be an object's key`);
}

export function tooLarge(key: string, sizeBytes: number, maxBytes: number): never {
  return fail("PAYLOAD_TOO_LARGE", `object ${key} has ${sizeBytes} bytes; the maximum here is ${maxBytes}`);
}
