// The interface of the admin server's storage: texts by key, each with a version that a change must name.

/** Versions are greater than 0; 0 stands for an absent key. */
export type Version = bigint;
export type Entry = { readonly key: string; readonly value: string; readonly version: Version };

/**
 * A change is durable when its promise resolves, and visible to all later reads, including those of other servers.
 * Every method @throws METADATA_UNAVAILABLE if the backend does not answer in time; the outcome of a change is then unknown.
 */
export interface Records {
  get(key: string): Promise<Entry | undefined>;
  /** Lists all keys that begin with `prefix`, in byte order. */
  list(prefix: string): Promise<Entry[]>;
  /** Returns the new version, or undefined without any change if the stored version is not `expected`. */
  put(key: string, value: string, expected: Version): Promise<Version | undefined>;
  /** Returns false if the stored version is not `expected`, or the key is absent. */
  delete(key: string, expected: Version): Promise<boolean>;
  close(): Promise<void>;
}

/** A longer list is refused, because it would indicate a bug. */
export const MAX_LISTED = 100_000;
