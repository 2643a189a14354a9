// The leader's work on the shared folder: deletes files that no object has, verifies files that readers reported, and sets the folder's capacity.
import { join } from "node:path";
import type { Log } from "@svc/kit/log.ts";
import { type FileTrouble, fileTroubleOf, SharedFiles } from "../files/shared-files.ts";
import type { StorageConfig } from "../rpc/shapes.ts";
import { toWire } from "../rpc/text.ts";
import type { NativeMaster } from "./native.ts";
import type { ReportedFile } from "./native-disks.ts";
import type { MasterSettings } from "./settings.ts";

const LOOK_MS = 500;
/** The number of files that are deleted, and verified, in one round. */
const MAX_SWEPT = 512;
const MAX_VERIFIED = 64;
/** The share of its file system that files may take where no quota is set. */
const SHARE = 0.9;
const MAX_BYTES = 2n ** 63n - 1n;

type FolderSettings = Pick<MasterSettings, "root_fs_dir" | "cluster_id" | "quota_bytes" | "global_file_segment_size" | "enable_disk_eviction">;

/** Returns the path of this cluster's folder, with one character per byte as on the wire; "" where there is none. */
export const folderOf = ({ root_fs_dir: root, cluster_id: cluster }: FolderSettings): string => (root === "" ? "" : toWire(join(root, cluster)));

export const storageConfigOf = (settings: FolderSettings): StorageConfig => ({
  root: folderOf(settings),
  evictsDisk: settings.enable_disk_eviction,
  quotaBytes: bytesOf(settings.quota_bytes),
});

type Parts = { readonly native: NativeMaster; readonly settings: FolderSettings; readonly log: Log; isServing(): boolean };

/** Returns undefined where no folder is set. */
export function openFolder({ native, settings, log, isServing }: Parts): { close(): void } | undefined {
  if (settings.root_fs_dir === "") return undefined;
  const files = new SharedFiles(join(settings.root_fs_dir, settings.cluster_id));
  const root = new SharedFiles(settings.root_fs_dir);
  let logged: FileTrouble | undefined;
  let isBusy = false;

  async function round(): Promise<void> {
    const trouble = await look();
    if (trouble !== logged) logTrouble(trouble);
    logged = trouble;
    if (trouble !== undefined) return;
    await sweep();
    for (const reported of native.reportedFiles(MAX_VERIFIED)) await verify(reported);
  }

  async function look(): Promise<FileTrouble | undefined> {
    try {
      // The root is measured, since the cluster's own folder is created with its first file.
      const [allBytes, freeBytes] = await root.space();
      const { used_bytes: used } = JSON.parse(native.sharedFolder()) as { used_bytes: number };
      const share = Math.min(allBytes * SHARE, used + Math.max(0, freeBytes - allBytes * (1 - SHARE)));
      const quota = settings.quota_bytes === 0 ? share : settings.quota_bytes;
      native.setFolderQuota(bytesOf(Math.min(quota, settings.global_file_segment_size)));
      return undefined;
    } catch (error) {
      return fileTroubleOf(error);
    }
  }

  async function sweep(): Promise<void> {
    const gone: bigint[] = [];
    const removals: Promise<void>[] = [];
    for (const { name, file } of native.sweepable(MAX_SWEPT)) {
      removals.push(
        files.remove(name).then(
          () => void gone.push(file),
          (error) => {
            const trouble = fileTroubleOf(error);
            // The folder is absent because nothing was ever stored or because its
            // file system is not mounted; in the second case the file still exists.
            if (trouble !== "absent") log.warn({ file: join(files.folder, name), trouble }, "a file of the shared folder cannot be removed");
          },
        ),
      );
    }
    await Promise.all(removals);
    if (gone.length > 0 && isServing()) native.swept(gone);
  }

  /** A reader's report is trusted only if the leader finds the same, since readers may be wrong or may not see the folder. */
  async function verify({ tenant, key, name, file, sizeBytes, checksum }: ReportedFile): Promise<void> {
    const trouble = await files.verify(name, sizeBytes).then((found) => (checksum === undefined || found === checksum ? undefined : "damaged"), fileTroubleOf);
    if (!isServing() || (trouble !== "damaged" && trouble !== "gone")) return;
    native.dropFile(tenant, key, file, trouble === "damaged");
    log.warn(
      { file: join(files.folder, name), key: Buffer.from(key, "latin1").toString() },
      trouble === "damaged" ? "a file of the shared folder is damaged" : "a file of the shared folder is gone",
    );
  }

  function logTrouble(trouble: FileTrouble | undefined): void {
    if (trouble === undefined) log.info({ folder: files.folder }, "the shared folder answers again");
    else
      log.warn(
        { folder: settings.root_fs_dir, trouble },
        trouble === "absent"
          ? "store.root_fs_dir does not exist here: create it or mount it. Clients of hosts that have it store files there all the same; files of removed objects stay, and no quota is known"
          : "store.root_fs_dir cannot be used from here: files of removed objects stay, and no quota is known",
      );
  }

  const timer = setInterval(() => {
    if (isBusy || !isServing()) return;
    isBusy = true;
    round()
      .catch((error: Error) => log.warn({ err: error }, "the shared folder was not looked at"))
      .finally(() => {
        isBusy = false;
      });
  }, LOOK_MS);
  return {
    close() {
      clearInterval(timer);
      files.close();
      root.close();
    },
  };
}

const bytesOf = (value: number): bigint => {
  const whole = BigInt(Math.trunc(value));
  return whole > MAX_BYTES ? MAX_BYTES : whole;
};
