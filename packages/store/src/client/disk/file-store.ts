// What a disk of a client's needs of the place where its files are: a folder of this host, or a bucket.

/** What a file says of its object, so that a master that knows nothing of it can be told. Texts have one byte per character. */
export type About = {
  readonly tenant: string;
  readonly key: string;
  readonly fingerprint: string;
  readonly group: string;
  readonly dataType: number;
  readonly hardPin: boolean;
};

export type Found = About & { readonly file: number; readonly sizeBytes: number; readonly checksum: bigint };

/** Failures of its methods are what `troubleOf` names. */
export interface FileStore {
  /** Where it is, for people. */
  readonly folder: string;
  /** For how long something waits for it, or failed, and nothing came back meanwhile. */
  readonly silentMs: number;
  /** Why that is, where it is known. */
  readonly silence: string;
  /** The numbers of all files; what was left half written is none of them. Before anything is written. */
  list(): Promise<number[]>;
  /** About how many bytes a listed file takes, where that is known without looking at it. */
  sizeOf?(file: number): number | undefined;
  /** A number that no file had. @throws CAPACITY_EXHAUSTED when all were given. */
  number(): Promise<number>;
  /** See `ObjectFiles.write`: the file is there, for good, once this returns. */
  write(file: number, words: BigUint64Array, about: About, expected: bigint | undefined): Promise<bigint>;
  /** Its master says that it has what its object had. */
  settle(file: number): Promise<void>;
  /** One that is not there is as good as removed. */
  remove(file: number): Promise<void>;
  verify(file: number): Promise<void>;
  about(file: number): Promise<Found>;
  /** Bytes of its file system: all, and free ones. */
  space(): Promise<[number, number]>;
  close(): void | Promise<void>;
}
