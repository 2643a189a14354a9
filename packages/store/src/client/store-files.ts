// Stores files of this client's objects in the shared folder: started at the master, written, and ended there.
import type { SharedFiles } from "../files/shared-files.ts";
import type { EndedFile } from "../rpc/shapes.ts";
import { call, type FileMove, type Flow, moveFiles } from "./flow.ts";
import type { Part } from "./memory.ts";

//  stored in memory ──StartFiles──> written ──EndFiles──> a replica in the folder
//          └──no room, no answer──┐     └──full, late──┴──EndFiles, not whole──> memory alone
//                                 └──> memory alone

export type FilesParts = {
  readonly clientID: string;
  readonly tenant: string;
  /** The folder, if the cluster has one and this client uses it. */
  readonly shared: SharedFiles | undefined;
  count(what: "filed" | "unfiled"): void;
};

export type FileItem = { readonly key: string; readonly parts: readonly Part[]; readonly sizeBytes: number; readonly checksum: bigint };

/** The time limit for one file, so that a file system that does not answer delays a put no longer. */
const WRITE_MS = 5000;
const BYTES_PER_MS = 20_000;
/** The pause after a failure, since the next file would wait just as long. */
const PAUSE_MS = 1000;
const pausedUntilMs = new WeakMap<SharedFiles, number>();
/** A call whose answer was lost is repeated: both calls give the same answer twice. */
const ATTEMPTS = 2;

export function* storeFiles(parts: FilesParts, items: readonly FileItem[]): Flow<void> {
  const { shared } = parts;
  if (shared === undefined || items.length === 0) return;
  if (performance.now() < (pausedUntilMs.get(shared) ?? 0)) return countAll(parts, items.length);
  const begun: { item: FileItem; file: bigint; name: string | undefined }[] = [];
  const answers = yield* twice(() =>
    call(
      "StartFiles",
      parts.clientID,
      items.map(({ key, sizeBytes, checksum }) => ({ key, sizeBytes: BigInt(sizeBytes), checksum })),
      parts.tenant,
    ),
  );
  items.forEach((item, at) => {
    const answer = answers?.[at];
    if (answer?.ok === true) begun.push({ item, file: answer.value.file, name: shared.nameOf(answer.value.path) });
    else parts.count("unfiled");
  });
  const written = begun.filter((each) => each.name !== undefined);
  const bytes = written.reduce((sum, { item }) => sum + item.sizeBytes, 0);
  const moves = written.map(({ item, name }): FileMove => ({ name: name as string, sizeBytes: item.sizeBytes, words: wordsOf(item.parts) }));
  const troubles = moves.length === 0 ? [] : yield* moveFiles("WRITE", moves, WRITE_MS + Math.ceil(bytes / BYTES_PER_MS));
  if (troubles.some((trouble) => trouble !== undefined)) pausedUntilMs.set(shared, performance.now() + PAUSE_MS);
  const whole = new Set(written.filter((_, at) => troubles[at] === undefined));
  const ended = begun.map((each): EndedFile => ({ key: each.item.key, file: each.file, isWhole: whole.has(each) }));
  if (ended.length === 0) return;
  const ends = yield* twice(() => call("EndFiles", parts.clientID, ended, parts.tenant));
  // Files that are not ended are given up by the master after `put_start_discard_timeout`.
  ended.forEach(({ isWhole }, at) => {
    parts.count(isWhole && ends?.[at]?.ok === true ? "filed" : "unfiled");
  });
}

/** Returns the words of a file's ranges: local address, 0 and length of each. */
export function wordsOf(parts: readonly Part[]): BigUint64Array {
  const words = new BigUint64Array(parts.length * 3);
  parts.forEach(({ address, sizeBytes }, at) => {
    words[at * 3] = address;
    words[at * 3 + 2] = BigInt(sizeBytes);
  });
  return words;
}

function* twice<T>(ask: () => Flow<T>): Flow<T | undefined> {
  for (let attempt = 1; ; attempt++) {
    try {
      return yield* ask();
    } catch {
      // The put still succeeds, since the object lies in memory.
      if (attempt === ATTEMPTS) return undefined;
    }
  }
}

function countAll(parts: FilesParts, count: number): void {
  for (let left = count; left > 0; left--) parts.count("unfiled");
}
