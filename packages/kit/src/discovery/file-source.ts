// Engines from a JSON file, which is read again whenever it changes.
import { readFile, stat } from "node:fs/promises";
import { named, readEntry } from "./engine-entry.ts";
import { Repeat } from "./repeat.ts";
import type { Source, SourceEvents } from "./source.ts";

const LOOK_MS = 1_000;

export function openFileSource(path: string, { onEntries, onTrouble }: SourceEvents): Source {
  let seen = "";
  return new Repeat(async () => {
    try {
      // Editors and Kubernetes replace a file by another one, so its inode counts, too.
      const { ino, mtimeNs, size } = await stat(path, { bigint: true });
      const state = `${ino} ${mtimeNs} ${size}`;
      if (state === seen) return LOOK_MS;
      const entries = JSON.parse(await readFile(path, "utf8")) as unknown;
      if (!Array.isArray(entries)) throw new Error('expected a list such as [{"name": "a", "url": "http://HOST:PORT"}]');
      const read = entries.map((entry, at) => named(readEntry(entry, `entry ${at + 1}`)));
      const names = read.map(({ name }) => name);
      const twice = names.find((name, at) => names.indexOf(name) !== at);
      if (twice !== undefined) throw new Error(`the engine ${twice} is there twice; give each a name of its own`);
      seen = state;
      onEntries(read);
    } catch (error) {
      seen = "";
      onTrouble(`${path}: ${(error as Error).message}`);
    }
    return LOOK_MS;
  });
}
