// What the admin server keeps, wherever it keeps it: texts by key, each with a version that a change must name.

/** Greater than 0; 0 stands for a key that is not there. */
export type Version = bigint;
export type Entry = { readonly key: string; readonly value: string; readonly version: Version };

/**
 * A change is kept when its promise resolves, and is seen by every later read, of other servers too.
 * Each @throws METADATA_UNAVAILABLE where the backend does not answer in time: then nobody knows whether a change was made.
 */
export interface Records {
  get(key: string): Promise<Entry | undefined>;
  /** Of all keys that begin with `prefix`, in the order of their bytes. */
  list(prefix: string): Promise<Entry[]>;
  /** Its new version; undefined where the stored one is not `expected`, and then nothing was changed. */
  put(key: string, value: string, expected: Version): Promise<Version | undefined>;
  /** False where the stored version is not `expected`, or there is none. */
  delete(key: string, expected: Version): Promise<boolean>;
  close(): Promise<void>;
}

/** A longer list is refused: it would be the sign of a defect. */
export const MAX_LISTED = 100_000;
