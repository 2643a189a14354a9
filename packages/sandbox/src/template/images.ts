// Root images: a base and layers over it, stacked read-only by overlayfs as the root of sandboxes.
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { chmod, mkdir, readdir, rmdir } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { asFailure, fail, isDiskFull } from "@svc/contract/failures.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import { readMounts, unmountUnder } from "../runtime/mounts.ts";
import type { RootImage } from "../runtime/runtime.ts";
import type { Chain } from "./build-record.ts";
import type { Database } from "./database.ts";
import type { Layers } from "./layers.ts";

//   sandbox's own upper layer        the driver's
//   ───────────────────────────
//   run/images/<imageID>/            overlayfs, read-only, made by ready()
//     layers/<top>/diff
//     …
//     layers/<lowest>/diff
//     base: a setup template         absent if the lowest layer is a complete root (an OCI image, a Debian suite)

/** mount(2) accepts one page of options, of which each layer's relative path takes 22 characters. */
export const MAX_LAYERS = 150;
const MAX_OPTION_BYTES = 4000;
const TOUCH_EVERY_MS = 10 * 60_000;

export interface Images {
  /** Returns the image of a stack and records it; `ready` mounts it. */
  of(chain: Chain): RootImage;
  chainOf(image: RootImage): Chain;
  /** Returns the setup folder that an image is based on; layers are verified separately. */
  groundOf(image: RootImage): string | undefined;
  /** @throws HOST_UNSUITABLE if no layer can be stacked on this chain, so that a step can fail before its work. */
  mustTakeLayer(chain: Chain): void;
  /**
   * Ensures that the image's root file system is mounted; returns at once if it is. Called before every start of a sandbox.
   * @throws SNAPSHOT_DAMAGED if a layer is damaged, HOST_UNSUITABLE if overlayfs cannot be used.
   */
  ready(image: RootImage): Promise<void>;
  /** Returns the layers of these images. */
  layersOf(rootfs: Iterable<string>): Set<string>;
  /** Unmounts and deletes all images older than the bound, except these. */
  keepOnly(rootfs: ReadonlySet<string>, olderThanMs: number): Promise<number>;
  /** `everything` also unmounts all images; sandboxes must have ended. */
  close(everything: boolean): Promise<void>;
}

export async function openImages(home: string, layers: Layers, db: Database, spawner: Spawner, nowMs: () => number): Promise<Images> {
  const folder = join(home, "run/images");
  await mkdir(folder, { recursive: true, mode: 0o700 });
  // Users of the host must not reach a set-user-id program of an untrusted image.
  await chmod(folder, 0o700);
  /** The times at which this process last updated each image's row, to limit writes, since every create resolves names. */
  const touchedAtMs = new Map<string, number>();
  const underWay = new Map<string, Promise<void>>();

  function chainNamed(imageID: string): Chain | undefined {
    const row = db.get("SELECT chain FROM images WHERE image_id = ?", imageID);
    return row === undefined ? undefined : (JSON.parse(row["chain"] as string) as Chain);
  }

  function chainOf(image: RootImage): Chain {
    if (dirname(image.rootfs) === folder) {
      const imageID = basename(image.rootfs);
      return chainNamed(imageID) ?? fail("SNAPSHOT_DAMAGED", `image ${imageID} no longer exists; build its template again`);
    }
    const layerID = basename(dirname(image.rootfs));
    if (image.rootfs === join(layers.folder, layerID, "diff")) return { base: undefined, layers: [layerID] };
    return { base: image, layers: [] };
  }

  function mustStack(): void {
    if (process.getuid?.() !== 0)
      fail(
        "HOST_UNSUITABLE",
        "a template with layers is stacked by overlayfs, which needs root, and this node runs without; run it as root to build and start such templates",
      );
  }

  async function mount(image: RootImage): Promise<void> {
    const chain = chainOf(image);
    if (chain.base !== undefined && !existsSync(chain.base.rootfs)) {
      fail("SNAPSHOT_DAMAGED", `the template's base ${chain.base.rootfs} is gone; run ./svc setup, then build the template again`);
    }
    for (const layerID of chain.layers) await layers.verify(layerID);
    if (dirname(image.rootfs) !== folder || readMounts().some(({ point }) => point === image.rootfs)) return;
    mustStack();
    await mkdir(image.rootfs, { recursive: true, mode: 0o755 });
    // The top layer comes first; paths are relative to the layers' folder so that the options fit into one page.
    const lower = [...chain.layers].reverse().map((layerID) => `${layerID}/diff`);
    if (chain.base !== undefined) lower.push(escaped(chain.base.rootfs));
    // A redirect in an untrusted layer could lead to other parts of the stack; our layers have none, so redirects are not followed.
    const options = `ro,lowerdir=${lower.join(":")},redirect_dir=nofollow,metacopy=off,index=off`;
    if (options.length > MAX_OPTION_BYTES)
      fail("INVALID_REQUEST", `the template has ${chain.layers.length} layers; the maximum is ${MAX_LAYERS}: combine RUN steps with &&`);
    await spawner.check(["mount", "-t", "overlay", "svc-image", "-o", options, image.rootfs], { cwd: layers.folder }).catch((cause: unknown) => {
      fail("HOST_UNSUITABLE", `the layers of image ${basename(image.rootfs)} cannot be stacked: ${asFailure(cause).message}`, { cause });
    });
  }

  return {
    of(chain) {
      const binds = chain.base?.binds ?? [];
      if (chain.layers.length === 0) return chain.base ?? fail("INTERNAL", "an image needs a base or a layer");
      if (chain.base === undefined && chain.layers.length === 1) return { rootfs: join(layers.folder, chain.layers[0] ?? "", "diff"), binds };
      const text = JSON.stringify(chain);
      const imageID = createHash("sha256").update(text).digest("hex").slice(0, 24);
      if ((touchedAtMs.get(imageID) ?? 0) > nowMs() - TOUCH_EVERY_MS) return { rootfs: join(folder, imageID), binds };
      try {
        db.run("INSERT INTO images VALUES (?, ?, ?) ON CONFLICT (image_id) DO UPDATE SET used_at = excluded.used_at", imageID, text, nowMs());
        touchedAtMs.set(imageID, nowMs());
      } catch (error) {
        // The image is already recorded, so only the time of its last use is lost.
        if (!isDiskFull(error) || chainNamed(imageID) === undefined) throw error;
      }
      return { rootfs: join(folder, imageID), binds };
    },
    chainOf,
    mustTakeLayer(chain) {
      if (chain.base !== undefined || chain.layers.length > 0) mustStack();
    },
    groundOf: (image) => chainOf(image).base?.rootfs || undefined,
    ready(image) {
      if (dirname(image.rootfs) !== folder && !image.rootfs.startsWith(`${layers.folder}/`)) return Promise.resolve();
      const known = underWay.get(image.rootfs);
      if (known !== undefined) return known;
      const work = mount(image);
      underWay.set(image.rootfs, work);
      work.catch(() => underWay.delete(image.rootfs));
      return work;
    },
    layersOf(rootfs) {
      const found = new Set<string>();
      for (const path of rootfs) {
        const inLayers = basename(dirname(path));
        if (path === join(layers.folder, inLayers, "diff")) found.add(inLayers);
        if (dirname(path) === folder) for (const layerID of chainNamed(basename(path))?.layers ?? []) found.add(layerID);
      }
      return found;
    },
    async keepOnly(rootfs, olderThanMs) {
      let removed = 0;
      for (const row of db.all("SELECT image_id FROM images WHERE used_at < ?", olderThanMs)) {
        const imageID = row["image_id"] as string;
        const path = join(folder, imageID);
        if (rootfs.has(path)) continue;
        underWay.delete(path);
        touchedAtMs.delete(imageID);
        await unmountUnder(spawner, path);
        await rmdir(path).catch(() => undefined);
        db.remove("DELETE FROM images WHERE image_id = ?", imageID);
        removed++;
      }
      return removed;
    },
    async close(everything) {
      underWay.clear();
      if (!everything) return;
      await unmountUnder(spawner, folder);
      for (const name of await readdir(folder)) await rmdir(join(folder, name)).catch(() => undefined);
    },
  };
}

/** A colon separates directories, so it is escaped with a backslash; a comma would end the option and cannot be escaped. */
function escaped(path: string): string {
  if (path.includes(",")) fail("HOST_UNSUITABLE", `${path}: overlayfs takes no path with a comma; give SVC_CACHE another folder`);
  return path.replace(/[\\:]/g, "\\$&");
}
