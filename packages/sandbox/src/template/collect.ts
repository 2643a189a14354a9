// Deletes what is not needed any more: old builds, images, layers beyond the cache's bound, uploads. The needed set is computed each time.
import type { Builder } from "./builder.ts";

const HOUR_MS = 3600_000;
/** The time after which unused uploads are deleted. */
const FILES_KEPT_MS = 24 * HOUR_MS;
/** The time after which a requested build that was never started is deleted. */
const UNSTARTED_KEPT_MS = 24 * HOUR_MS;
/** The time after which builds that failed or lost their tags are deleted. */
const UNTAGGED_KEPT_MS = 7 * 24 * HOUR_MS;
/** A layer or image made more recently may not be referenced by a record yet. */
const GRACE_MS = HOUR_MS;
const MIB = 1024 * 1024;

export type Collected = { readonly builds: number; readonly images: number; readonly layers: number; readonly files: number };

/** `imagesInUse` has the `rootfs` of the image of every sandbox and snapshot. */
export async function collect(builder: Builder, buildsUnderWay: boolean, imagesInUse: Iterable<string>): Promise<Collected> {
  const inUse = new Set(imagesInUse);
  const builds = await oldBuilds(builder);
  const waiting = new Set(
    builder.builds.withStatus("waiting", "building").flatMap(({ spec }) => spec?.steps.flatMap(({ filesHash }) => filesHash ?? []) ?? []),
  );
  const files = await builder.uploads.collect(builder.nowMs() - FILES_KEPT_MS, waiting);
  // No record references a build's chain before the build ends.
  if (buildsUnderWay) return { builds, images: 0, layers: 0, files };
  const ready = [...builder.builds.withStatus("ready"), ...builder.copies.all()].flatMap(({ result }) => (result === undefined ? [] : [result.chain]));
  const wanted = new Set([...inUse, ...ready.map((chain) => builder.images.of(chain).rootfs)]);
  const images = await builder.images.keepOnly(wanted, builder.nowMs() - GRACE_MS);
  const layers = await oldLayers(builder, new Set([...ready.flatMap((chain) => chain.layers), ...builder.images.layersOf(wanted)]));
  return { builds, images, layers, files };
}

async function oldBuilds({ builds, checkpoints, nowMs }: Builder): Promise<number> {
  let removed = 0;
  for (const { templateID } of builds.templates()) {
    const all = builds.of(templateID);
    const tagged = new Set(builds.tags(templateID).map(({ buildID }) => buildID));
    for (const build of all) {
      const age = nowMs() - build.updatedAtMs;
      const unstarted = build.status === "waiting" && build.spec === undefined && age > UNSTARTED_KEPT_MS;
      // The newest build is kept, so that a template always shows the result of its last build.
      const over = (build.status === "ready" || build.status === "error") && !tagged.has(build.buildID) && build !== all[0] && age > UNTAGGED_KEPT_MS;
      if (!unstarted && !over) continue;
      if (unstarted) builds.abandon(build.buildID);
      else builds.removeBuild(build.buildID);
      if (build.result?.checkpointID !== undefined) await checkpoints.remove(build.result.checkpointID);
      removed++;
    }
  }
  return removed;
}

/** Layers that only the step cache references are kept while they fit into its bound, the most recently used first. */
async function oldLayers(builder: Builder, needed: ReadonlySet<string>): Promise<number> {
  const { cache, layers, layersInHand, settings, nowMs } = builder;
  for (const [layerID, since] of layersInHand) if (since < nowMs() - GRACE_MS) layersInHand.delete(layerID);
  const keep = new Set([...needed, ...layersInHand.keys()]);
  let left = settings.cache_mb * MIB;
  for (const { key, layerID } of cache.all()) {
    if (layerID === null || keep.has(layerID)) continue;
    const info = layers.info(layerID);
    left -= info?.sizeBytes ?? 0;
    if (info !== undefined && left >= 0) keep.add(layerID);
    else cache.drop(key);
  }
  let removed = 0;
  const unneeded = layers.unread().filter((layerID) => !keep.has(layerID));
  for (const layerID of unneeded) {
    await layers.remove(layerID);
    removed++;
  }
  for (const { layerID, createdAt } of layers.all()) {
    if (keep.has(layerID) || Date.parse(createdAt) > nowMs() - GRACE_MS) continue;
    await layers.remove(layerID);
    removed++;
  }
  return removed;
}
