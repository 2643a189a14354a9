// Derives the release of Mooncake's client from a message's type hash, so that a refusal can name it.

/** The releases whose calls this master answers. */
export const SERVED = "0.3.13 and 0.3.14";

/** Maps the hash of a call's arguments, recorded from each release's own client. Hashes that only releases of `SERVED` send are not listed. */
const releases: ReadonlyMap<number, string> = new Map(
  (
    [
      ["PutStart, BatchPutStart, PutEnd, BatchPutEnd, UpsertStart", "0.3.12", [0x6920ea5d, 0x80485c75, 0x1b7a228b, 0x94ee5d45]],
      ["PutStart, BatchPutStart, BatchPutEnd", "0.3.11", [0x5dddcc89, 0xcc9bc313, 0x3af685d7]],
      ["PutStart, BatchPutStart", "0.3.10", [0x66ce6bf7, 0xa2f1f15d]],
      ["PutStart, BatchPutStart", "0.3.8 or 0.3.9", [0x786e5847, 0x990568cf]],
      ["PutStart, BatchPutStart, PutEnd", "0.3.7 or earlier", [0x2eb40707, 0x82e01885, 0x081b904b]],
      ["MountSegment, ReMountSegment", "0.3.9 to 0.3.11", [0x0f2fcc19, 0xecb9930d]],
      ["MountSegment, ReMountSegment", "0.3.8 or earlier", [0x70fcb3db, 0xc3ddcd17]],
      ["Remove, RemoveByRegex, RemoveAll", "0.3.9 to 0.3.11", [0xdbcf8901, 0x13c8ffd9]],
      ["PutEnd", "0.3.8 to 0.3.11", [0x61232de1]],
      ["BatchPutEnd", "0.3.8 to 0.3.10", [0x581e61a5]],
      ["a key alone, keys alone: GetReplicaList, ExistKey, BatchExistKey", "0.3.11 or earlier", [0x9dcffa77, 0x8a86e11b]],
    ] as const
  ).flatMap(([, release, hashes]) => hashes.map((hash) => [hash, release] as const)),
);

export const releaseOf = (hash: number): string | undefined => releases.get(hash);
