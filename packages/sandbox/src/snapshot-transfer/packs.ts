// Packs the folders that checkpoints are based on (setup templates and layers) as archives for a transfer, each when it is needed.
import { createHash, randomBytes } from "node:crypto";
import { mkdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import { CHUNK_BYTES, type ChunkThread } from "./chunk-thread.ts";
import { fileShape, type TransferFile } from "./manifest.ts";

// snapshot-transfer/known/<key>     the cached description of a folder that does not change: its content hash, or its archive's chunks
// snapshot-transfer/pack-<random>   an archive during its transfer

const SCAN_TIMEOUT_MS = 10 * 60_000;

/** Hashes kinds, modes, owners, sizes, links, paths and times only, so that the check of an unchanged folder takes milliseconds. */
const dated = `set -o pipefail; find . -xdev ! -type d -printf '%y %m %U:%G %s %l %p %T@\\0' -o -printf '%y %m %U:%G %p\\0' | LC_ALL=C sort -z | sha256sum`;
/** Hashes the same without times but with file contents, so that one template set up on two machines has one hash. */
const content = `set -e -o pipefail
{ find . -xdev ! -type d -printf '%y %m %U:%G %s %l %p\\0' -o -printf '%y %m %U:%G %p\\0' | LC_ALL=C sort -z
  find . -xdev -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum -b --zero --
} | sha256sum`;
/** $1 is the archive to create; the same folder always gives the same bytes. */
const pack = `tar --create --file="$1" --sort=name --numeric-owner --format=posix --pax-option=exthdr.name=%d/x/%f,delete=atime,delete=ctime \
  --xattrs --xattrs-include=trusted.overlay.opaque --one-file-system .`;
/** $1 is an archive. Its entries stay below the folder: tar refuses "..", and does not follow links from the archive. */
const unpack = `tar --extract --file="$1" --numeric-owner --preserve-permissions --same-owner --xattrs --xattrs-include=trusted.overlay.opaque`;
/** A sandbox's files must not contain a device that names one of the host's; only a deleted file is a device, 0,0. */
const strange = `find . -xdev '(' -type b -o -type c -o -type p -o -type s ')' -printf '%y %p\\n' | while read -r kind path; do
  [ "$kind" = c ] && [ "$(stat -c %t:%T -- "$path")" = 0:0 ] || { echo "$path"; break; }; done`;

export interface Packs {
  /** Returns the content hash of a folder that set-up made. */
  contentOf(rootfs: string): Promise<string>;
  /** Describes the archive of a folder; `key` identifies the folder's content. */
  describe(key: string, name: string, folder: string): Promise<TransferFile>;
  /** Describes one file whose name identifies its content. */
  describeNamed(name: string, path: string): Promise<TransferFile>;
  /** Describes a base template's archive. */
  describeBase(content: string, rootfs: string): Promise<TransferFile>;
  /** Returns the layer made from this archive on this node, if known. */
  layerOf(file: TransferFile): Promise<string | undefined>;
  noteLayer(file: TransferFile, layerID: string): Promise<void>;
  /** Returns the path of a new archive; the caller removes it. */
  make(folder: string): Promise<string>;
  /** Unpacks into an empty folder. @throws SNAPSHOT_DAMAGED if it is not an archive of this format. */
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
  /** Caches the result of `find` by key; concurrent calls share one run. */
  function remembered(key: string, find: () => Promise<string>): Promise<string> {
    const path = join(known, createHash("sha256").update(key).digest("hex"));
    const look = async () => {
      const kept = await readFile(path, "utf8").catch(() => undefined);
      if (kept !== undefined) return kept;
      const found = await find();
      await writeFile(`${path}.${process.pid}`, found);
      await rename(`${path}.${process.pid}`, path);
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

/** Hashes all chunks of a file; runs of zeros are only counted. */
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
