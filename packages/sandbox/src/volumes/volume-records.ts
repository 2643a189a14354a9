// Volumes as files of one directory, which several nodes may share: names/NAME is the record, and its creation and removal are the commits.
import { createHash, randomBytes } from "node:crypto";
import { link, mkdir, open, readdir, readFile, rm, stat, unlink } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { MAX_VOLUME_NAME } from "@svc/contract/volumes.ts";
import { z } from "zod";

export const backings = ["image", "directory"] as const;
export type Backing = (typeof backings)[number];

const record = z.object({
  volumeID: z.string().regex(/^vol[0-9a-f]{20}$/),
  name: z.string(),
  /** Absent: the deployment itself. */
  tenant: z.string().optional(),
  sizeMB: z.number().int(),
  backing: z.enum(backings),
  createdAtMs: z.number(),
  /** The bytes that its file system counts as used while it has no files. */
  emptyBytes: z.number().default(0),
});
export type VolumeRecord = z.output<typeof record>;

export interface VolumeRecords {
  /** All of them, sorted by name. A file that is not a record is reported and left alone. */
  list(): Promise<VolumeRecord[]>;
  /** Finds a volume by its id, whomever it belongs to, or by its name in the tenant; undefined as the tenant is the deployment itself. */
  find(asked: string, tenant: string | undefined): Promise<VolumeRecord | undefined>;
  /** @throws VOLUME_EXISTS. From then on the volume exists, also after a power cut. */
  add(record: VolumeRecord): Promise<void>;
  /** From then on the volume does not exist; its data is removed later. */
  remove(record: VolumeRecord): Promise<void>;
}

export const newVolumeID = (): string => `vol${randomBytes(10).toString("hex")}`;
/** A half-written record of a node that was killed; it is younger if its node is still writing it. */
const HALF_WRITTEN_MS = 3_600_000;

/**
 * Returns the name of a record's file. That of a tenant is longer than any name of a volume, so the two never collide, and a version without
 * tenants finds it damaged, which makes it keep the files.
 */
export function recordFile({ name, tenant }: Pick<VolumeRecord, "name" | "tenant">): string {
  return tenant === undefined ? name : `tenant-${createHash("sha512").update(`${tenant}\n${name}`).digest("hex")}`;
}

export async function openVolumeRecords(directory: string, onDamaged: (path: string, error: unknown) => void): Promise<VolumeRecords> {
  const names = join(directory, "names");
  await mkdir(names, { recursive: true, mode: 0o700 });
  const pathOf = (file: string) => join(names, file);

  async function read(file: string): Promise<VolumeRecord | undefined> {
    const path = pathOf(file);
    try {
      const found = record.parse(JSON.parse(await readFile(path, "utf8")));
      if (recordFile(found) !== file) throw new Error(`it is the record of '${found.name}'`);
      return found;
    } catch (error) {
      // Another request may have deleted it meanwhile.
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") onDamaged(path, error);
      return undefined;
    }
  }
  const isName = (name: string) => /^[a-zA-Z0-9_-]+$/.test(name);

  async function list(): Promise<VolumeRecord[]> {
    const found = await Promise.all((await readdir(names)).filter(isName).map(read));
    return found.filter((each) => each !== undefined).sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
  }

  for (const name of await readdir(names)) {
    if (!name.endsWith(".tmp")) continue;
    const found = await stat(pathOf(name)).catch(() => undefined);
    if (found !== undefined && Date.now() - found.mtimeMs > HALF_WRITTEN_MS) await rm(pathOf(name), { force: true });
  }

  return {
    list,
    async find(asked, tenant) {
      if (!isName(asked) || asked.length > MAX_VOLUME_NAME) return undefined;
      return (await list()).find(({ volumeID }) => volumeID === asked) ?? (await read(recordFile({ name: asked, tenant })));
    },
    async add(added) {
      const half = pathOf(`${added.volumeID}.tmp`);
      const file = await open(half, "wx", 0o600);
      try {
        await file.writeFile(JSON.stringify(added));
        await file.sync();
      } finally {
        await file.close();
      }
      try {
        // Unlike a rename, a link fails if the name exists, also where another node makes it at the same moment.
        await link(half, pathOf(recordFile(added)));
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
        fail("VOLUME_EXISTS", `volume '${added.name}' exists already; choose another name, or delete it first`);
      } finally {
        await unlink(half).catch(() => undefined);
      }
      await syncDirectory(names);
    },
    async remove(removed) {
      await unlink(pathOf(recordFile(removed))).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== "ENOENT") throw error;
      });
      await syncDirectory(names);
    },
  };
}

export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, "r");
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
