// Built templates in object storage: exported by the node that built them, imported by any node of the deployment.
import { fail } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Objects } from "@svc/kit/objects/objects.ts";
import type { Report } from "../observe/open-observe.ts";
import type { Checkpoints } from "../records/checkpoints.ts";
import type { Copies, Copy } from "../template/copies.ts";
import type { Images } from "../template/images.ts";
import { splitReference } from "../template/reference.ts";
import { arriveBuild } from "./arrive-build.ts";
import type { Bases } from "./bases.ts";
import { type ChunkStore, MANIFESTS, type Sent } from "./chunk-store.ts";
import type { ChunkThread } from "./chunk-thread.ts";
import { type DescribeParts, readChunk, type Source } from "./describe.ts";
import { withBuild } from "./describe-build.ts";
import type { Deployment } from "./manifest.ts";
import type { ReceiveParts } from "./receive.ts";
import { BUILD_ID, readTemplate, type TemplateManifest, type TransferParts, writeTemplate } from "./template-manifest.ts";
import type { TransferMetrics } from "./transfer-metrics.ts";

// manifests/templates/<buildID>      a build never changes
// names/<name>/<tag>                 the id of the build that the tag means (of a snapshot: stored.ts)
// names/<templateID>/<tag>           the same

export interface StoredTemplates {
  /** All that a start on another node needs is stored when this returns. @throws OBJECTS_UNAVAILABLE, SNAPSHOT_DAMAGED, CHECKPOINT_UNAVAILABLE. */
  exportBuild(build: Copy): Promise<void>;
  hasBuild(buildID: string): Promise<boolean>;
  dropBuild(buildID: string): Promise<void>;
  putName(key: string, buildID: string): Promise<void>;
  /** Deletes the name if it still means one of these builds. */
  dropName(key: string, builds: readonly string[]): Promise<void>;
  /** Returns true if the build exists; it is on this node then. Concurrent calls share one fetch. @throws what `receive` throws. */
  importBuild(buildID: string): Promise<boolean>;
  /** Like `importBuild`, for a name that means this build, or for NAME:BUILD_ID; returns the id or name by which it is found here. */
  importNamed(asked: string, buildID: string | undefined): Promise<string | undefined>;
  /** Deletes all builds and names of the template of this build; returns false if it is not stored. Calls `first` with the template's id before. */
  dropTemplateOf(buildID: string, first: (templateID: string) => Promise<void>): Promise<boolean>;
}

export type StoredTemplatesParts = {
  readonly nodeID: () => string;
  readonly objects: Objects;
  readonly store: ChunkStore;
  readonly bases: Bases;
  readonly checkpoints: Pick<Checkpoints, "holding" | "remove">;
  readonly images: Pick<Images, "of" | "chainOf">;
  readonly copies: Copies;
  readonly describing: DescribeParts;
  readonly receiving: ReceiveParts;
  readonly thread: ChunkThread;
  readonly deployment: Deployment;
  readonly metrics: Pick<TransferMetrics, "timed">;
  readonly report: Report;
  readonly log: Log;
};

const MAX_ID_BYTES = 100;
const buildKey = (buildID: string) => `templates/${buildID}`;
export const templateNameKey = (nameOrID: string, tag: string) => `names/${nameOrID}/${tag}`;

export function openStoredTemplates(parts: StoredTemplatesParts): StoredTemplates {
  const { objects, store, copies, deployment, metrics, log } = parts;
  const arriving = new Map<string, Promise<boolean>>();

  async function send(build: Copy, described: TransferParts, sources: readonly Source[]): Promise<Sent> {
    return store.send(buildKey(build.buildID), writeTemplate(build, described, deployment.key, parts.nodeID()), sources, (chunk) =>
      readChunk(parts.thread, chunk),
    );
  }

  const sendAll = (build: Copy) => withBuild(parts, build, parts.bases.file, (described, sources) => send(build, described, sources));

  async function manifestOf(buildID: string): Promise<TemplateManifest | undefined> {
    const written = await store.manifest(buildKey(buildID));
    if (written === undefined) return undefined;
    const where = `${buildKey(buildID)} in ${objects.url}`;
    const manifest = readTemplate(written, deployment, where);
    return manifest.buildID === buildID ? manifest : fail("SNAPSHOT_DAMAGED", `${where} belongs to another build`);
  }

  async function arrive(buildID: string): Promise<boolean> {
    const manifest = await manifestOf(buildID);
    if (manifest === undefined) return false;
    await arriveBuild(parts, manifest, "object storage", store.fetch);
    return true;
  }

  async function dropName(key: string, builds: readonly string[]): Promise<void> {
    if (builds.includes((await objects.get(key, MAX_ID_BYTES))?.toString("utf8") ?? "")) await objects.delete(key);
  }

  async function importBuild(buildID: string): Promise<boolean> {
    if (!BUILD_ID.test(buildID)) return false;
    if (copies.get(buildID) !== undefined) return true;
    const underWay = arriving.get(buildID) ?? arrive(buildID).finally(() => arriving.delete(buildID));
    arriving.set(buildID, underWay);
    return underWay;
  }

  return {
    async exportBuild(build) {
      const begin = performance.now();
      const sent = await metrics.timed("export", () => sendAll(build));
      const { templateID, name, buildID } = build;
      log.info({ templateID, name, buildID, ...sent, ms: Math.round(performance.now() - begin) }, "a template was exported to object storage");
    },
    hasBuild: async (buildID) => (await objects.head(`${MANIFESTS}${buildKey(buildID)}`)) !== undefined,
    dropBuild: (buildID) => store.drop(buildKey(buildID)),
    putName: (key, buildID) => objects.put(key, Buffer.from(buildID)),
    dropName,
    importBuild,
    async importNamed(asked, buildID) {
      if (buildID !== undefined) return (await importBuild(buildID)) ? buildID : undefined;
      // The caller's lookup by the full reference also checks that the build belongs to that name.
      return (await importBuild(splitReference(asked).tag ?? "")) ? asked : undefined;
    },
    async dropTemplateOf(buildID, first) {
      const manifest = await manifestOf(buildID);
      if (manifest === undefined) return false;
      await first(manifest.templateID);
      const prefix = `names/${manifest.templateID}/`;
      for await (const { key } of objects.list(prefix)) {
        const named = (await objects.get(key, MAX_ID_BYTES))?.toString("utf8") ?? "";
        await dropName(templateNameKey(manifest.name, key.slice(prefix.length)), [named]);
        if (BUILD_ID.test(named)) await store.drop(buildKey(named));
        // The template's own name is deleted last, so that a repeated delete after a kill still finds the rest.
        await objects.delete(key);
      }
      await store.drop(buildKey(buildID));
      return true;
    },
  };
}
