// The volumes of a node: made, listed and deleted here, found for sandboxes that mount them, and kept while one does.
import { mkdir } from "node:fs/promises";
import { Failure, fail } from "@svc/contract/failures.ts";
import type { Volume, VolumeMount } from "@svc/contract/volumes.ts";
import { openKeyedLock } from "@svc/kit/keyed-lock.ts";
import { DEPLOYMENT, type Principal, sees, tenantOf } from "@svc/kit/keys/principal.ts";
import type { TenantQuotas } from "@svc/kit/keys/tenant-quotas.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Metrics } from "@svc/kit/metrics.ts";
import { sameSecret, volumeToken } from "@svc/kit/secret.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import { isOwned, type Registry } from "../records/registry.ts";
import type { MountedVolume, VolumeReference } from "../runtime/runtime.ts";
import { sweepIncoming } from "./content.ts";
import { type VolumesSettings, volumesDirectory } from "./settings.ts";
import { canUseImages, openDirectories, openImages, type VolumeDisk, type VolumeFolders } from "./volume-disks.ts";
import { type Backing, newVolumeID, openVolumeRecords, type VolumeRecord } from "./volume-records.ts";

export interface Volumes {
  /** Makes a volume of the principal's tenant. @throws VOLUME_EXISTS, QUOTA_EXCEEDED, DISK_FULL. */
  create(name: string, sizeMB: number | undefined, principal: Principal): Promise<Volume>;
  /** Returns the volumes that the principal sees. */
  list(principal: Principal): Promise<Volume[]>;
  /** Finds one by its id, or by its name in the principal's tenant. @throws VOLUME_NOT_FOUND. */
  get(asked: string, principal: Principal): Promise<Volume>;
  /** @throws VOLUME_NOT_FOUND, VOLUME_IN_USE. */
  delete(asked: string, principal: Principal): Promise<void>;
  /** The number of volumes of each tenant that has some. */
  counts(): Promise<ReadonlyMap<string, number>>;
  /** True if this node can reach the volume of this id, or the deployment's own of this name. */
  has(asked: string): Promise<boolean>;
  tokenOf(volumeID: string): string;
  /** Returns the folders of a volume if the token is that of the volume. @throws UNAUTHENTICATED, VOLUME_NOT_FOUND. */
  open(asked: string, token: string | undefined): Promise<VolumeFolders & { readonly leftBytes: number }>;
  /** Finds the volumes of a create by their names in the tenant. @throws VOLUME_NOT_FOUND. */
  referencesOf(mounts: readonly VolumeMount[], tenant: string | undefined): Promise<VolumeReference[]>;
  /** None of the volumes is deleted during `work`, at the end of which a sandbox's record names them. */
  holding<T>(references: readonly VolumeReference[], work: () => Promise<T>): Promise<T>;
  /** Mounts the volumes on the host, for a sandbox that is about to start. @throws VOLUME_NOT_FOUND, VOLUME_DAMAGED, DISK_FULL. */
  mounted(references: readonly VolumeReference[]): Promise<MountedVolume[]>;
  /** Returns the volumes on this node's own disk, mounted; none for a directory that nodes share. */
  onThisDisk(): Promise<{ readonly volumeID: string; readonly name: string; readonly files: string }[]>;
  /** True if other nodes reach the same volumes, so that sandboxes with volumes may move. */
  readonly isShared: boolean;
  close(everything: boolean): Promise<void>;
}

export type VolumesParts = {
  readonly home: string;
  readonly settings: VolumesSettings;
  readonly seed: string;
  readonly spawner: Spawner;
  readonly registry: Pick<Registry, "all">;
  readonly quotas: Pick<TenantQuotas, "runVolume">;
  readonly nodeID: () => string;
  readonly metrics: Metrics;
  readonly log: Log;
};

const MEBIBYTE = 1024 * 1024;
const MAX_WAITING_PER_VOLUME = 256;

export async function openVolumes({ home, settings, seed, spawner, registry, quotas, nodeID, metrics, log }: VolumesParts): Promise<Volumes> {
  const directory = volumesDirectory(home, settings);
  const isShared = settings.directory !== "";
  await mkdir(directory, { recursive: true, mode: 0o711 }).catch((error: unknown) =>
    fail("SETTING_INVALID", `setting volumes.directory: '${directory}' cannot be used: ${(error as Error).message}`),
  );
  const parts = { directory, spawner, log };
  const disks: Record<Backing, VolumeDisk> = { image: openImages(parts), directory: openDirectories(parts) };
  const backing: Backing = !isShared && (await canUseImages()) ? "image" : "directory";
  const damaged = new Set<string>();
  const records = await openVolumeRecords(directory, (path, error) => {
    if (damaged.has(path)) return;
    damaged.add(path);
    log.error({ err: error, path }, "the record of a volume cannot be read; its files are kept");
  });
  const lock = openKeyedLock("volume", MAX_WAITING_PER_VOLUME);
  /** Starts in progress, whose sandboxes have no claim yet, by volume. */
  const starting = new Map<string, number>();
  const swept = new Set<string>();

  // In a shared directory another node may be making a volume that has no record yet.
  if (!isShared) await removeOrphans();
  metrics.gauge("svc_node_volumes", "Volumes that this node reaches", [], async (gauge) => gauge.set((await records.list()).length));

  /** Removes what a kill left of a volume that was being made or deleted, unless records are unreadable: it might belong to one of them. */
  async function removeOrphans(): Promise<void> {
    const known = new Set((await records.list()).map(({ volumeID }) => volumeID));
    if (damaged.size > 0) return;
    for (const disk of Object.values(disks)) for (const volumeID of await disk.list()) if (!known.has(volumeID)) await disk.remove(volumeID);
  }

  function usersOf(volumeID: string): string[] {
    const all = [...registry.all()].filter(isOwned);
    return all.filter(({ status }) => status.claim.volumes?.some((each) => each.volumeID === volumeID)).map(({ sandboxID }) => sandboxID);
  }

  async function shown(record: VolumeRecord): Promise<Volume> {
    const { volumeID, name, sizeMB, createdAtMs, tenant } = record;
    const usedBytes = await disks[record.backing].usedBytes(record).catch((error: unknown) => {
      log.warn({ err: error, volumeID }, "the bytes of a volume could not be counted");
      return 0;
    });
    const where = { ...(isShared ? {} : { nodeID: nodeID() }), ...(tenant === undefined ? {} : { tenant }) };
    return { volumeID, name, sizeMB, usedBytes, createdAt: new Date(createdAtMs).toISOString(), ...where, sandboxIDs: usersOf(volumeID) };
  }

  async function find(asked: string, principal: Principal): Promise<VolumeRecord> {
    const found = await records.find(asked, tenantOf(principal));
    if (found !== undefined && sees(principal, found.tenant)) return found;
    return fail("VOLUME_NOT_FOUND", `volume '${asked}' was not found on this node; \`svc volume list\` lists them`);
  }

  async function foldersOf(record: VolumeRecord): Promise<VolumeFolders> {
    const folders = await lock.run(record.volumeID, () => disks[record.backing].folders(record));
    if (!swept.has(record.volumeID)) {
      swept.add(record.volumeID);
      await sweepIncoming(folders).catch((error: unknown) => log.warn({ err: error }, "unfinished uploads to a volume could not be removed"));
    }
    return folders;
  }

  /** Images answer ENOSPC by themselves. */
  async function leftBytes(record: VolumeRecord): Promise<number> {
    if (record.backing === "image") return Number.POSITIVE_INFINITY;
    return record.sizeMB * MEBIBYTE - (await disks.directory.usedBytes(record));
  }

  async function counts(): Promise<ReadonlyMap<string, number>> {
    const found = new Map<string, number>();
    for (const { tenant } of await records.list()) if (tenant !== undefined) found.set(tenant, (found.get(tenant) ?? 0) + 1);
    return found;
  }

  async function make(name: string, sizeMB: number, tenant: string | undefined): Promise<Volume> {
    const all = await records.list();
    if (all.some((each) => each.name === name && each.tenant === tenant))
      fail("VOLUME_EXISTS", `volume '${name}' exists already; choose another name, or delete it first`);
    if (all.length >= settings.max_volumes)
      throw new Failure("TOO_MANY_REQUESTS", `there are ${all.length} volumes, the maximum (volumes.max_volumes); delete some`);
    const made = { volumeID: newVolumeID(), name, ...(tenant === undefined ? {} : { tenant }), sizeMB, backing, createdAtMs: Date.now() };
    const record: VolumeRecord = { ...made, emptyBytes: await disks[backing].make(made) };
    try {
      await records.add(record);
    } catch (error) {
      await disks[backing].remove(record.volumeID);
      throw error;
    }
    return shown(record);
  }

  return {
    isShared,
    async create(name, sizeMB = settings.size_mb, principal) {
      if (sizeMB > settings.max_size_mb) fail("INVALID_REQUEST", `sizeMB: expected at most ${settings.max_size_mb} (volumes.max_size_mb), got ${sizeMB}`);
      const tenant = tenantOf(principal);
      return quotas.runVolume(
        tenant,
        async () => (await counts()).get(tenant ?? "") ?? 0,
        () => make(name, sizeMB, tenant),
      );
    },
    counts,
    list: async (principal) => Promise.all((await records.list()).filter(({ tenant }) => sees(principal, tenant)).map(shown)),
    get: async (asked, principal) => shown(await find(asked, principal)),
    async delete(asked, principal) {
      const record = await find(asked, principal);
      const { volumeID, name } = record;
      await lock.run(volumeID, async () => {
        const users = usersOf(volumeID);
        if (users.length > 0 || (starting.get(volumeID) ?? 0) > 0)
          fail(
            "VOLUME_IN_USE",
            `volume '${name}' is mounted by ${users.length === 0 ? "a sandbox that starts" : `sandbox ${users.join(", ")}`}: end what mounts it first`,
          );
        await records.remove(record);
        await disks[record.backing].remove(volumeID);
        swept.delete(volumeID);
      });
    },
    async onThisDisk() {
      const all = isShared ? [] : await records.list();
      return Promise.all(all.map(async (record) => ({ volumeID: record.volumeID, name: record.name, files: (await foldersOf(record)).files })));
    },
    has: async (asked) => (await records.find(asked, undefined)) !== undefined,
    tokenOf: (volumeID) => volumeToken(seed, volumeID),
    async open(asked, token) {
      const record = await find(asked, DEPLOYMENT);
      if (!sameSecret(token, volumeToken(seed, record.volumeID)))
        fail("UNAUTHENTICATED", "the content of a volume needs its token: Authorization: Bearer TOKEN");
      return { ...(await foldersOf(record)), leftBytes: await leftBytes(record) };
    },
    async referencesOf(mounts, tenant) {
      const all = mounts.length === 0 ? [] : await records.list();
      return mounts.map(({ name, path }) => {
        const found = all.find((each) => each.name === name && each.tenant === tenant);
        if (found === undefined) fail("VOLUME_NOT_FOUND", `volumeMounts: volume '${name}' was not found on this node; \`svc volume list\` lists them`);
        return { volumeID: found.volumeID, name, path };
      });
    },
    async holding(references, work) {
      for (const { volumeID } of references) starting.set(volumeID, (starting.get(volumeID) ?? 0) + 1);
      try {
        return await work();
      } finally {
        for (const { volumeID } of references) {
          const left = (starting.get(volumeID) ?? 1) - 1;
          if (left > 0) starting.set(volumeID, left);
          else starting.delete(volumeID);
        }
      }
    },
    mounted: (references) =>
      Promise.all(
        references.map(async ({ volumeID, name, path }) => {
          const record = await records.find(volumeID, undefined);
          if (record === undefined) fail("VOLUME_NOT_FOUND", `volume '${name}' (${volumeID}), which the sandbox mounts at ${path}, is not on this node`);
          if ((await leftBytes(record)) < 0)
            fail("DISK_FULL", `volume '${name}' holds more than its ${record.sizeMB} MiB: remove files from it before a sandbox mounts it`);
          return { source: (await foldersOf(record)).files, path };
        }),
      ),
    async close(everything) {
      if (everything) for (const disk of Object.values(disks)) await disk.close();
    },
  };
}
