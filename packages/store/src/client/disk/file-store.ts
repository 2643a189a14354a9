// The storage of a client's disk: a folder of this host, or a bucket.

/** The description of an object in its file, from which a master that does not know the object can restore it. Texts have one byte per character. */
export type About = {
  readonly tenant: string;
  readonly key: string;
  readonly fingerprint: string;
  readonly group: string;
  readonly dataType: number;
  readonly hardPin: boolean;
};

export type Found = About & { readonly file: number; readonly sizeBytes: number; readonly checksum: bigint };

/** The methods fail with errors that `troubleOf` knows. */
export interface FileStore {
  /** The location as shown to people. */
  readonly folder: string;
  /** The time since an operation started to wait or last failed without any answer from the storage; 0 while it answers. */
  readonly silentMs: number;
  /** The reason for the silence, where it is known. */
  readonly silence: string;
  /** Returns the numbers of all complete files. It must be called before anything is written. */
  list(): Promise<number[]>;
  /** Returns the approximate size of a listed file, where it is known without reading the file. */
  sizeOf?(file: number): number | undefined;
  /** Returns a number that no file ever had. @throws CAPACITY_EXHAUSTED when all numbers are used. */
  number(): Promise<number>;
  /** Writes like `ObjectFiles.write`: the file exists for good once this resolves. */
  write(file: number, words: BigUint64Array, about: About, expected: bigint | undefined): Promise<bigint>;
  /** Marks the file as accepted by the master. */
  settle(file: number): Promise<void>;
  /** A file that does not exist counts as removed. */
  remove(file: number): Promise<void>;
  verify(file: number): Promise<void>;
  about(file: number): Promise<Found>;
  /** Returns the total and the free bytes of its file system. */
  space(): Promise<[number, number]>;
  close(): void | Promise<void>;
}
