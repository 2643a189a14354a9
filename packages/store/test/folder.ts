// Helpers of the shared folder's tests: masters with a folder, the entries of keys, and the files in the folder.
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { until } from "@svc/harness/until.ts";
import type { TestMaster } from "./master.ts";

export const MIB = 2 ** 20;
/** Short leases and release times, so that evictions and sweeps come soon. */
export const folderFlags = (folder: string, ...more: readonly string[]): string[] => [
  `--root_fs_dir=${folder}`,
  "--default_kv_lease_ttl=200",
  "--put_start_release_timeout_sec=1",
  ...more,
];

export type Entry = {
  ok: boolean;
  error?: string;
  values?: unknown[];
  disk_values?: { file_path: string; object_size: number }[];
  local_disk_values?: unknown[];
  nof_values?: unknown[];
};
export async function entryOf(master: Pick<TestMaster, "url">, key: string): Promise<Entry> {
  const answer = await fetch(`${master.url}/batch_query_keys?keys=${encodeURIComponent(key)}`);
  return ((await answer.json()) as { data: Record<string, Entry> }).data[key] as Entry;
}

/** Returns the paths of all files below a folder, including incomplete ones. */
export const filesBelow = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, encoding: "utf8" })
    .map((name) => join(folder, name))
    .filter((path) => statSync(path, { throwIfNoEntry: false })?.isFile() === true);

export const metric = async (master: Pick<TestMaster, "url">, name: string): Promise<number> =>
  Number(new RegExp(`^${name} (\\S+)$`, "m").exec(await (await fetch(`${master.url}/metrics`)).text())?.[1] ?? Number.NaN);

export const untilFiles = (folder: string, count: number) =>
  until(`${count} files are in the folder`, async () => (filesBelow(folder).length === count ? true : undefined));
