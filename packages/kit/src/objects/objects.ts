// Object storage as svc uses it: small whole objects by key; in a directory, or behind an S3-compatible server.
import { fail } from "@svc/contract/failures.ts";

export type ObjectInfo = { readonly key: string; readonly sizeBytes: number; readonly modifiedAtMs: number };

/** Of an object's bytes: `end` is exclusive. */
export type ByteRange = { readonly start: number; readonly end: number };

const MAX_KEY_BYTES = 900;
const segment = /^[A-Za-z0-9_~-][A-Za-z0-9_.~-]*$/;

/** Every method is tried again with growing waits, within a bound, and then @throws OBJECTS_UNAVAILABLE. */
export interface Objects {
  /** Where it is, for people. */
  readonly url: string;
  /** What is large is cut by its owner, so that each can be held, sent again and verified as a whole. Whole under its key when this returns, in the place of what was there. `sha256`: of the body, in hex, where it is known. @throws DISK_FULL. */
  put(key: string, body: Buffer, sha256?: string): Promise<void>;
  /** Undefined where there is none. @throws PAYLOAD_TOO_LARGE when it has more than `maxBytes`, having read no more. */
  get(key: string, maxBytes: number, range?: ByteRange): Promise<Buffer | undefined>;
  head(key: string): Promise<ObjectInfo | undefined>;
  /** All whose key begins with `prefix`, in no order that can be relied on; those that come or go meanwhile may be among them, or not. */
  list(prefix: string): AsyncGenerator<ObjectInfo>;
  /** Also where there is none. */
  delete(key: string): Promise<void>;
  close(): Promise<void>;
}

/** Keys of ours are plain words between slashes, so that they mean the same in a directory, in a URL and in a listing. */
export function checkKey(key: string): string {
  if (key.length <= MAX_KEY_BYTES && key.split("/").every((each) => segment.test(each))) return key;
  return fail("INTERNAL", `${JSON.stringify(key.slice(0, 100))} cannot be an object's key`);
}

export function tooLarge(key: string, sizeBytes: number, maxBytes: number): never {
  return fail("PAYLOAD_TOO_LARGE", `object ${key} has ${sizeBytes} bytes; the maximum here is ${maxBytes}`);
}
