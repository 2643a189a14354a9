// The files of volumes without a node: mounted to be backed up, and made again when a backup is restored.
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { readMounts } from "../runtime/mounts.ts";
import { canUseImages, type DiskParts, openDirectories, openImages } from "./volume-disks.ts";
import { openVolumeRecords, recordFile, type VolumeRecord } from "./volume-records.ts";

export type VolumeContents = {
  mounted(): Promise<{ readonly volumeID: string; readonly name: string; readonly files: string }[]>;
  /** Makes the storage of a volume whose record is there, and lets `fill` write its files. @throws DISK_FULL. */
  restore(volumeID: string, fill: (files: string) => Promise<void>): Promise<void>;
  /** Unmounts them, unless some were mounted before: sandboxes may use those. */
  close(): Promise<void>;
};

/** No node may run on this directory meanwhile. */
export function openVolumeContents(parts: DiskParts): VolumeContents {
  const { directory } = parts;
  const hadMounts = readMounts().some(({ point }) => point.startsWith(`${join(directory, "mounts")}/`));
  const disks = { image: openImages(parts), directory: openDirectories(parts) };
  const records = () =>
    openVolumeRecords(directory, (path, error) =>
      fail("VOLUME_DAMAGED", `the record ${path} of a volume cannot be read: ${(error as Error).message}`, { cause: error }),
    );

  return {
    async mounted() {
      const all = await (await records()).list();
      return Promise.all(
        all.map(async (record) => ({ volumeID: record.volumeID, name: record.name, files: (await disks[record.backing].folders(record)).files })),
      );
    },
    async restore(volumeID, fill) {
      const found = await (await records()).find(volumeID, undefined);
      if (found === undefined) return fail("BACKUP_DAMAGED", `the backup has files of volume ${volumeID}, and no record of it`);
      const backing = found.backing === "image" && !(await canUseImages()) ? "directory" : found.backing;
      await disks[backing].remove(volumeID);
      const emptyBytes = await disks[backing].make({ ...found, backing });
      const record: VolumeRecord = { ...found, backing, emptyBytes };
      await writeFile(join(directory, "names", recordFile(found)), JSON.stringify(record));
      await fill((await disks[backing].folders(record)).files);
    },
    async close() {
      if (!hadMounts) for (const disk of Object.values(disks)) await disk.close();
    },
  };
}
