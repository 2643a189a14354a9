// Folders that checkpoints stand on, as archives that transfer: what is in a template of set-up's, and layers, each packed when it is needed.
import { createHash, randomBytes } from "node:crypto";
import { mkdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import { CHUNK_BYTES, type ChunkThread } from "./chunk-thread.ts";
import { fileShape, type TransferFile } from "./manifest.ts";

// snapshot-transfer/known/<key>     what was found of a folder that does not change: its content's name, or its archive's chunks
// snapshot-transfer/pack-<random>   an archive while it is transferred

const SCAN_TIMEOUT_MS = 10 * 60_000;

/** Kinds, modes, owners, sizes, links, paths and times: looked at alone, a second time is a matter of milliseconds. */
const dated = `set -o pipefail; find . -xdev ! -type d -printf '%y %m %U:%G %s %l %p %T@\\0' -o -printf '%y %m %U:%G %p\\0' | LC_ALL=C sort -z | sha256sum`;
/** The same without times, and with what each file holds: alike where set-up made the same template on two machines. */
const content = `set -e -o pipefail
{ find . -xdev ! -type d -printf '%y %m %U:%G %s %l %p\\0' -o -printf '%y %m %U:%G %p\\0' | LC_ALL=C sort -z
  find . -xdev -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum -b --zero --
} | sha256sum`;
/** $1: the archive to be; the same bytes for the same folder, each time. */
const pack = `tar --create --file="$1" --sort=name --numeric-owner --format=posix --pax-option=exthdr.name=%d/x/%f,delete=atime,delete=ctime \
  --xattrs --xattrs-include=trusted.overlay.opaque --one-file-system .`;
/** $1: an archive. What it names lies below, whatever it says: tar refuses "..", and follows no link that it brought. */
const unpack = `tar --extract --file="$1" --numeric-owner --preserve-permissions --same-owner --xattrs --xattrs-include=trusted.overlay.opaque`;
/** A device that names one of the host's must be in no sandbox's files; a deleted file is a device 0,0. */
const strange = `find . -xdev '(' -type b -o -type c -o -type p -o -type s ')' -printf '%y %p\\n' | while read -r kind path; do
  [ "$kind" = c ] && [ "$(stat -c %t:%T -- "$path")" = 0:0 ] || { echo "$path"; break; }; done`;

export interface Packs {
  /** The name of what is in a folder that set-up made. */
  contentOf(rootfs: string): Promise<string>;
  /** An archive's chunks; `key` names the folder's content. */
  describe(key: string, name: string, folder: string): Promise<TransferFile>;
  /** Those of one file whose name says what is in it. */
  describeNamed(name: string, path: string): Promise<TransferFile>;
  /** A base template's. */
  describeBase(content: string, rootfs: string): Promise<TransferFile>;
  /** The layer that was made of this archive here, as far as is known. */
  layerOf(file: TransferFile): Promise<string | undefined>;
  noteLayer(file: TransferFile, layerID: string): Promise<void>;
  /** The path of the archive; whoever gets it removes it. */
  make(folder: string): Promise<string>;
  /** Into a folder that is empty. @throws SNAPSHOT_DAMAGED when it is no archive of ours. */
  unpack(archive: string, into: string): Promise<void>;
}

export async function openPacks(folder: string, spawner: Spawner, thread: ChunkThread): Promise<Packs> {
  const known = join(folder, "known");
  await mkdir(known, { recursive: true, mode: 0o700 });
  const underWay = new Map<string, Promise<string>>();

  const digest = async (script: string, cwd: string) => {
    const said = await spawner.check(["bash", "-c", script], { cwd, timeoutMs: SCAN_TIMEOUT_MS, repeatable: true });
    return /^[0-9a-f]{64}/.exec(said)?.[0] ?? fail("INTERNAL", `the files of ${cwd} could not be listed: ${said.slice(0, 200)}`);
  };
  /** What `find` finds, kept by its key; one look at a time. */
  function remembered(key: string, find: () => Promise<string>): Promise<string> {
    const place = join(known, createHash("sha256").update(key).digest("hex"));
    const look = async () => {
      const kept = await readFile(place, "utf8").catch(() => undefined);
      if (kept !== undefined) return kept;
      const found = await find();
      await writeFile(`${place}.${process.pid}`, found);
      await rename(`${place}.${process.pid}`, place);
      return found;
    };
    const looking = underWay.get(key) ?? look().finally(() => underWay.delete(key));
    underWay.set(key, looking);
    return looking;
  }

  const make = async (from: string) => {
    const path = join(folder, `pack-${randomBytes(8).toString("hex")}`);
    try {
      await spawner.check(["bash", "-c", pack, "bash", path], { cwd: from, timeoutMs: SCAN_TIMEOUT_MS });
      return path;
    } catch (error) {
      await rm(path, { force: true });
      throw error;
    }
  };

  const layerNote = ({ sizeBytes, chunks }: TransferFile) =>
    join(
      known,
      createHash("sha256")
        .update(`layer of ${JSON.stringify({ sizeBytes, chunks })}`)
        .digest("hex"),
    );

  async function describe(key: string, name: string, from: string): Promise<TransferFile> {
    const text = await remembered(`pack ${key}`, async () => {
      const path = await make(from);
      try {
        return JSON.stringify(await describeFile(thread, name, path));
      } finally {
        await rm(path, { force: true });
      }
    });
    return { ...fileShape.parse(JSON.parse(text)), name };
  }

  return {
    make,
    describe,
    async describeNamed(name, path) {
      const text = await remembered(`file ${name}`, async () => JSON.stringify(await describeFile(thread, name, path)));
      return fileShape.parse(JSON.parse(text));
    },
    describeBase: (content, rootfs) => describe(`base ${content} ${rootfs}`, "base.tar", rootfs),
    layerOf: (file) => readFile(layerNote(file), "utf8").catch(() => undefined),
    async noteLayer(file, layerID) {
      await writeFile(`${layerNote(file)}.new`, layerID);
      await rename(`${layerNote(file)}.new`, layerNote(file));
    },
    contentOf: async (rootfs) => remembered(`content ${await digest(dated, rootfs)}`, () => digest(content, rootfs)),
    async unpack(archive, into) {
      await spawner.check(["bash", "-c", unpack, "bash", archive], { cwd: into, timeoutMs: SCAN_TIMEOUT_MS }).catch((cause: unknown) => {
        if ((cause as Error).name === "DISK_FULL") throw cause;
        fail("SNAPSHOT_DAMAGED", `an archive of its template cannot be unpacked: ${(cause as Error).message.slice(-300)}`, { cause });
      });
      const found = (await spawner.check(["bash", "-c", strange], { cwd: into, timeoutMs: SCAN_TIMEOUT_MS })).trim();
      if (found !== "")
        fail("SNAPSHOT_DAMAGED", `an archive of its template holds ${JSON.stringify(found.slice(0, 200))}, a device, pipe or socket, which none of ours does`);
    },
  };
}

/** All chunks of a file, hashed; zeros by their number alone. */
export async function describeFile(thread: ChunkThread, name: string, path: string): Promise<TransferFile> {
  const { size: sizeBytes } = await stat(path);
  const chunks: (string | number)[] = [];
  for (let at = 0; at < sizeBytes; at += CHUNK_BYTES) {
    const sha256 = await thread.hash(path, at, Math.min(CHUNK_BYTES, sizeBytes - at));
    const last = chunks.at(-1);
    if (sha256 !== undefined) chunks.push(sha256);
    else if (typeof last === "number") chunks[chunks.length - 1] = last + 1;
    else chunks.push(1);
  }
  return { name, sizeBytes, chunks };
}
