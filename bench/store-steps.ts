// The calls that the store benches time, as frames in files: single and in batches, puts, lookups and removals.
import { join } from "node:path";
import { clientID, plain } from "../packages/store/test/calls.ts";
import { type Driven, frameOf, keyOf, type Load, OBJECT_BYTES, writeFrames } from "./store-masters.ts";

export const BATCH = 100;
export const CONNECTIONS = 4;

export type Step = {
  readonly what: string;
  /** Writes the frames of a round; several files in sequence are one operation that takes several calls. */
  files(round: string): readonly string[];
  /** The number of keys of a call. */
  readonly per: number;
  /** Our rate must reach this multiple of Mooncake's, at depth 1 and 16. */
  readonly goals: readonly [number, number];
};

export const batches = (prefix: string, count: number) =>
  Array.from({ length: count / BATCH }, (_, batch) => Array.from({ length: BATCH }, (_each, at) => keyOf(prefix, batch * BATCH + at)));

/** Lookups send their frames `repeats` times, so that a load of batches lasts long enough to be timed. */
export function storeSteps(folder: string, keys: number, repeats = { single: 1, batch: 1 }): readonly Step[] {
  const file = (name: string, frames: readonly Buffer[], times = 1): string => {
    const path = join(folder, name);
    writeFrames(path, Array.from({ length: times }, () => frames).flat());
    return path;
  };
  const each = (round: string, of: (key: string) => Buffer) => Array.from({ length: keys }, (_, at) => of(keyOf(round, at)));
  const ended = (key: string) => ({ key, checksum: undefined });
  const sizes = Array.from({ length: BATCH }, () => OBJECT_BYTES);
  const single = (what: string, name: string, of: (key: string) => Buffer, times = 1): Step => ({
    what,
    per: 1,
    goals: [1.0, 1.5],
    files: (round) => [file(name, each(round, of), times)],
  });
  const batch = (what: string, name: string, of: (keys: string[]) => Buffer): Step => ({
    what,
    per: BATCH,
    goals: [3, 3],
    files: (round) => [file(name, batches(round, keys).map(of), repeats.batch)],
  });
  return [
    {
      what: "put (start and end)",
      per: 1,
      goals: [1.0, 1.5],
      files: (round) => [
        file(
          "start",
          each(round, (key) => frameOf("PutStart", clientID, key, OBJECT_BYTES, plain, "")),
        ),
        file(
          "end",
          each(round, (key) => frameOf("PutEnd", clientID, ended(key), 4, "")),
        ),
      ],
    },
    single("exist", "exist", (key) => frameOf("ExistKey", key, ""), repeats.single),
    single("get replica list", "get", (key) => frameOf("GetReplicaList", key, ""), repeats.single),
    batch("batch exist, keys", "bexist", (all) => frameOf("BatchExistKey", all, "")),
    batch("batch get replica list, keys", "bget", (all) => frameOf("BatchGetReplicaList", all, "")),
    single("remove, forced", "remove", (key) => frameOf("Remove", key, true, "")),
    {
      what: "batch put (start and end), keys",
      per: BATCH,
      goals: [3, 3],
      files: (round) => {
        const all = batches(`b${round}`, keys);
        return [
          file(
            "bstart",
            all.map((some) => frameOf("BatchPutStart", clientID, some, sizes, plain, "")),
          ),
          file(
            "bend",
            all.map((some) => frameOf("BatchPutEnd", clientID, some.map(ended), 4, "")),
          ),
        ];
      },
    },
  ];
}

/** Runs the loads of one step one after the other, as one operation. */
export async function measure(driven: Driven, files: readonly string[], depth: number): Promise<Load & { readonly calls: number }> {
  const loads: Load[] = [];
  for (const file of files) loads.push(await driven.load(file, CONNECTIONS, depth));
  const sum = (of: (load: Load) => number) => loads.reduce((total, load) => total + of(load), 0);
  const first = loads[0] as Load;
  return {
    ...first,
    calls: Math.round(first.perSecond * first.seconds),
    perSecond: 1 / sum((load) => 1 / load.perSecond),
    cpuMicros: sum((load) => load.cpuMicros),
    p99: Math.max(...loads.map((load) => load.p99)),
  };
}
