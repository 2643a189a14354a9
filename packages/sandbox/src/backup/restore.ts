// `svc backup restore`: a backup into an empty home, all of it or none: until the last file is on the disk, no node starts there.
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { lockHome } from "@svc/kit/home-lock.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Objects } from "@svc/kit/objects/objects.ts";
import { openSpawner } from "@svc/kit/spawn.ts";
import { syncAll } from "@svc/kit/sync.ts";
import { unmountUnder } from "../runtime/mounts.ts";
import { openVolumeContents } from "../volumes/contents.ts";
import { type Manifest, readArchive, readManifest } from "./archive.ts";
import { movePaths } from "./databases.ts";
import { ETCD_ARCHIVE, type EtcdScope, restoreEtcd, restoreObjects } from "./deployment.ts";
import { STAGING, UNFINISHED } from "./home-parts.ts";
import { untar } from "./tar-stream.ts";

const VOLUME = "volume-";
const SYNC_TIMEOUT_MS = 30 * 60_000;
/** An empty file system has these names, too. */
const IGNORED: ReadonlySet<string> = new Set(["lost+found"]);

/** @throws HOST_UNSUITABLE, in words that say what to do, for a home that a restore did not finish. */
export function refuseUnfinished(home: string): void {
  let text: string;
  try {
    text = readFileSync(join(home, UNFINISHED), "utf8");
  } catch {
    return;
  }
  const from = /"url":"([^"]*)"/.exec(text)?.[1] ?? "the same backup";
  fail("HOST_UNSUITABLE", `${home} was not restored completely: run \`svc backup restore ${from} --home ${home}\` again, which starts over`);
}

export type RestoreParts = {
  readonly home: string;
  readonly objects: Objects;
  readonly log: Log;
  readonly etcd?: EtcdScope | undefined;
  readonly storage?: Objects | undefined;
};

export type Restored = { readonly manifest: Manifest; readonly notes: readonly string[] };

/** @throws INVALID_REQUEST for a home that is not empty, BACKUP_DAMAGED, DISK_FULL. After each the same command can be run again. */
export async function restoreBackup({ home, objects, log, etcd, storage }: RestoreParts): Promise<Restored> {
  const manifest = await readManifest(objects);
  mkdirSync(home, { recursive: true, mode: 0o711 });
  await lockHome(home, "node");
  const spawner = openSpawner();
  try {
    const names = readdirSync(home).filter((name) => !IGNORED.has(name));
    const isUnfinished = names.includes(UNFINISHED);
    if (names.length > 0 && !isUnfinished)
      fail(
        "INVALID_REQUEST",
        `${home} is not empty: it has ${names.slice(0, 3).join(", ")}${names.length > 3 ? ` and ${names.length - 3} more` : ""}, and was not changed; give another --home, or remove this one with \`svc uninstall --home ${home}\``,
      );
    if (isUnfinished) {
      await unmountUnder(spawner, home);
      for (const name of names) if (name !== UNFINISHED) rmSync(join(home, name), { recursive: true, force: true });
    }
    writeFileSync(join(home, UNFINISHED), JSON.stringify({ backupID: manifest.backupID, url: objects.url }), { mode: 0o600, flush: true });
    await syncAll([home]);

    const own = manifest.archives[0];
    if (own?.name !== "home") return fail("BACKUP_DAMAGED", `the backup in ${objects.url} has no archive of a home`);
    await untar(home, readArchive(objects, own));
    movePaths(home, manifest.home);
    const contents = openVolumeContents({ directory: join(home, "volumes"), spawner, log });
    try {
      for (const archive of manifest.archives) {
        if (!archive.name.startsWith(VOLUME)) continue;
        const volumeID = archive.name.slice(VOLUME.length);
        await contents.restore(volumeID, (files) => untar(files, readArchive(objects, archive)));
      }
    } finally {
      await contents.close();
    }
    const notes = await restoreShared(manifest, { home, objects, etcd, storage });
    markCheckpoints(home);
    await spawner.check(["sync", "-f", "--", home], { timeoutMs: SYNC_TIMEOUT_MS, repeatable: true });
    rmSync(join(home, UNFINISHED));
    await syncAll([home]);
    return { manifest, notes };
  } finally {
    await spawner[Symbol.asyncDispose]();
  }
}

/** Restores what the deployment shares, as far as it is missing there; returns what a person should know. */
async function restoreShared(manifest: Manifest, { home, objects, etcd, storage }: Omit<RestoreParts, "log">): Promise<string[]> {
  const notes: string[] = [];
  const ofEtcd = manifest.archives.find(({ name }) => name === ETCD_ARCHIVE);
  const copies = manifest.objects?.copies ?? [];
  if (copies.length > 0 && storage !== undefined)
    notes.push(`${await restoreObjects(objects, storage, copies)} of ${copies.length} objects were missing in ${storage.url}, and are back`);
  else if (copies.length > 0) notes.push(`${copies.length} objects of ${manifest.objects?.url} are in the backup and were not restored: give --objects.url`);
  if (ofEtcd === undefined) return notes;
  if (etcd === undefined) return [...notes, "the records of etcd are in the backup and were not restored: give --etcd where etcd lost them"];
  const written = await restoreEtcd(etcd, objects, ofEtcd, join(home, STAGING, "etcd"));
  return [...notes, written === undefined ? "etcd has records of this deployment, and was not changed" : `${written} records were written to etcd`];
}

/** Each file's digest was right, and no node starts before all are synced: no checkpoint is torn, whichever boot wrote it (records/sealed.ts). */
function markCheckpoints(home: string): void {
  const folder = join(home, "snapshots");
  if (!existsSync(folder)) return;
  for (const name of readdirSync(folder)) writeFileSync(join(folder, name, "on-disk"), "", { mode: 0o600 });
}
