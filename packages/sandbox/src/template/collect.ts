// Takes away what nobody needs: old builds, images, layers past the cache's bound, uploads. What is needed is reckoned anew each time.
import type { Workshop } from "./workshop.ts";

const HOUR_MS = 3600_000;
/** Uploads that no build has used for this long. */
const FILES_KEPT_MS = 24 * HOUR_MS;
/** Builds that were requested and never started. */
const UNSTARTED_KEPT_MS = 24 * HOUR_MS;
/** Builds that failed, or that no tag names any more. */
const UNTAGGED_KEPT_MS = 7 * 24 * HOUR_MS;
/** A layer, or an image, that was made a moment ago may be on its way into a record. */
const GRACE_MS = HOUR_MS;
const MIB = 1024 * 1024;

export type Collected = { readonly builds: number; readonly images: number; readonly layers: number; readonly files: number };

/** `imagesInUse`: `rootfs` of every sandbox's and every snapshot's image. */
export async function collect(shop: Workshop, buildsUnderWay: boolean, imagesInUse: Iterable<string>): Promise<Collected> {
  const inUse = new Set(imagesInUse);
  const builds = await oldBuilds(shop);
  const waiting = new Set(shop.builds.withStatus("waiting", "building").flatMap(({ spec }) => spec?.steps.flatMap(({ filesHash }) => filesHash ?? []) ?? []));
  const files = await shop.uploads.collect(shop.nowMs() - FILES_KEPT_MS, waiting);
  // A build's chain is named by no record before its end.
  if (buildsUnderWay) return { builds, images: 0, layers: 0, files };
  const ready = shop.builds.withStatus("ready").flatMap(({ result }) => (result === undefined ? [] : [result.chain]));
  const wanted = new Set([...inUse, ...ready.map((chain) => shop.images.of(chain).rootfs)]);
  const images = await shop.images.keepOnly(wanted, shop.nowMs() - GRACE_MS);
  const layers = await oldLayers(shop, new Set([...ready.flatMap((chain) => chain.layers), ...shop.images.layersOf(wanted)]));
  return { builds, images, layers, files };
}

async function oldBuilds({ builds, captures, nowMs }: Workshop): Promise<number> {
  let removed = 0;
  for (const { templateID } of builds.templates()) {
    const all = builds.of(templateID);
    const tagged = new Set(builds.tags(templateID).map(({ buildID }) => buildID));
    for (const build of all) {
      const age = nowMs() - build.updatedAtMs;
      const unstarted = build.status === "waiting" && build.spec === undefined && age > UNSTARTED_KEPT_MS;
      // The newest stays, so that a template always tells what became of it.
      const over = (build.status === "ready" || build.status === "error") && !tagged.has(build.buildID) && build !== all[0] && age > UNTAGGED_KEPT_MS;
      if (!unstarted && !over) continue;
      builds.removeBuild(build.buildID);
      if (build.result?.captureID !== undefined) await captures.remove(build.result.captureID);
      removed++;
    }
  }
  return removed;
}

/** Layers that only the step cache knows stay while they fit into its bound, the ones used last before the others. */
async function oldLayers(shop: Workshop, needed: ReadonlySet<string>): Promise<number> {
  const { db, layers, layersInHand, settings, nowMs } = shop;
  for (const [layerID, since] of layersInHand) if (since < nowMs() - GRACE_MS) layersInHand.delete(layerID);
  const keep = new Set([...needed, ...layersInHand.keys()]);
  let left = settings.cache_mb * MIB;
  for (const row of db.all("SELECT key, outcome FROM steps ORDER BY used_at DESC")) {
    const { layerID } = JSON.parse(row["outcome"] as string) as { layerID: string | null };
    if (layerID === null || keep.has(layerID)) continue;
    const info = layers.info(layerID);
    left -= info?.sizeBytes ?? 0;
    if (info !== undefined && left >= 0) keep.add(layerID);
    else db.remove("DELETE FROM steps WHERE key = ?", row["key"] as string);
  }
  let removed = 0;
  for (const { layerID, createdAt } of layers.all()) {
    if (keep.has(layerID) || Date.parse(createdAt) > nowMs() - GRACE_MS) continue;
    await layers.remove(layerID);
    removed++;
  }
  return removed;
}
