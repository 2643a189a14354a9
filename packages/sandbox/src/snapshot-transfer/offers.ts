// Offers this node's snapshots and builds to other nodes: each is described when it is first requested, then its chunks are served.

import type { NameRecord, OfferAnswer } from "@svc/contract/cluster.ts";
import { Failure, fail } from "@svc/contract/failures.ts";
import type { Quarantine } from "../records/quarantine.ts";
import { type Snapshots, withTag } from "../records/snapshots.ts";
import type { Builds } from "../template/builds.ts";
import type { Copies, Copy } from "../template/copies.ts";
import { type Chunk, chunksToSend, describe, readChunk, type Source } from "./describe.ts";
import { type DescribeBuildParts, withBuild } from "./describe-build.ts";
import type { LocalChunks } from "./local-chunks.ts";
import { type Deployment, writeManifest } from "./manifest.ts";
import { openPace } from "./pace.ts";
import { snapshotSubject } from "./subjects.ts";
import { BUILD_ID, writeTemplate } from "./template-manifest.ts";

/** Bounds the open offers: each has archives of its layers on disk, and prevents the removal of its parts. */
const MAX_OPEN = 8;
/** Bounds the concurrent reads, each with a chunk in memory; further requests have to retry. */
const MAX_READS = 16;
/** An unread offer is closed after this time; a later request opens it again. */
const IDLE_MS = 30_000;

export type OffersParts = DescribeBuildParts & {
  readonly nodeID: () => string;
  readonly snapshots: Pick<Snapshots, "find" | "unreadable" | "wasRemoved" | "names">;
  readonly builds: Pick<Builds, "resolve">;
  readonly copies: Pick<Copies, "get">;
  readonly quarantine: Pick<Quarantine, "find">;
  readonly deployment: Pick<Deployment, "key">;
  readonly localChunks: Pick<LocalChunks, "note">;
  readonly bytesPerSecond: number;
};

export interface Offers {
  /** Finds by id, and by name only what was made here, since other nodes resolve their own names. @throws QUARANTINED. */
  find(asked: string): NonNullable<OfferAnswer["offer"]> | undefined;
  /** Returns what this node knows of a snapshot's name. */
  named(asked: string): NameRecord | undefined;
  /** Returns true if the snapshot was taken here and deleted. */
  wasDeleted(asked: string): boolean;
  /** Returns the sealed manifest. @throws SNAPSHOT_NOT_FOUND, TOO_MANY_REQUESTS, and what `describe` throws. */
  manifest(id: string, withBase: boolean): Promise<Buffer>;
  /** @throws as `manifest`, and SNAPSHOT_NOT_FOUND for a chunk that is not part of it. */
  chunk(id: string, withBase: boolean, sha256: string): Promise<Buffer>;
  close(): Promise<void>;
}

type Opened = { readonly written: Buffer; readonly chunks: ReadonlyMap<string, Chunk>; reads: number; timer: NodeJS.Timeout; close(): void };

export function openOffers(parts: OffersParts): Offers {
  const { snapshots, builds, copies, quarantine, checkpoints, describing, deployment, localChunks } = parts;
  const open = new Map<string, Promise<Opened>>();
  const closing = new Set<Promise<unknown>>();
  const pace = openPace(parts.bytesPerSecond, MAX_READS);
  let reads = 0;

  function buildOf(id: string): Copy | undefined {
    const found = builds.resolve(id);
    if (found?.build.result === undefined) return copies.get(id);
    const { build, template } = found;
    return { buildID: build.buildID, templateID: template.templateID, name: template.name, createdAtMs: build.createdAtMs, result: found.build.result };
  }

  function find(asked: string): NonNullable<OfferAnswer["offer"]> | undefined {
    const build = buildOf(asked);
    const isCopy = build !== undefined && copies.get(asked) !== undefined;
    if (build !== undefined) return offerOf(build.buildID, !isCopy, build.originNodeID, build.createdAtMs);
    const snapshot = snapshots.find(asked);
    if (snapshot !== undefined) return offerOf(snapshot.snapshotID, snapshot.originNodeID === undefined, snapshot.originNodeID, snapshot.createdAtWallMs);
    const reason = (quarantine.find("snapshot", snapshots.unreadable(asked) ?? asked) ?? quarantine.find("build", asked) ?? quarantine.find("template", asked))
      ?.reason;
    return reason === undefined ? undefined : fail("QUARANTINED", `'${asked}' is quarantined on node ${parts.nodeID()}: ${reason}`);
  }

  /** Runs `work` while its files are protected against removal. */
  async function described(id: string, withBase: boolean, work: (written: Buffer, sources: readonly Source[]) => Promise<void>): Promise<void> {
    const baseFile = withBase ? describing.packs.describeBase : undefined;
    const gone = () => fail("SNAPSHOT_NOT_FOUND", `'${id}' is not on node ${parts.nodeID()} any more`);
    if (BUILD_ID.test(id)) {
      const build = buildOf(id) ?? gone();
      return withBuild(parts, build, baseFile, (transfer, sources) => work(writeTemplate(build, transfer, deployment.key, parts.nodeID()), sources));
    }
    const snapshot = snapshots.find(id) ?? gone();
    await checkpoints.holding(snapshot.checkpointID, async () => {
      await using its = await describe(describing, snapshotSubject(snapshot, parts.nodeID()), baseFile);
      await localChunks.note(snapshot.checkpointID, its.manifest.files);
      await work(writeManifest(its.manifest, deployment.key), its.sources);
    });
  }

  /** Closes the oldest offer that is not being read, to stay within the bound. */
  async function closeUnread(): Promise<void> {
    if (open.size < MAX_OPEN) return;
    for (const opening of open.values()) {
      const opened = await Promise.race([opening, undefined]);
      if (opened?.reads === 0) return opened.close();
    }
    throw new Failure("TOO_MANY_REQUESTS", `other nodes are fetching ${open.size} snapshots and templates from this node, the maximum`, {
      retryAfterSeconds: 1,
    });
  }

  function begin(key: string, id: string, withBase: boolean): Promise<Opened> {
    const ready = Promise.withResolvers<Opened>();
    const over = Promise.withResolvers<void>();
    const work = described(id, withBase, async (written, sources) => {
      const close = () => {
        clearTimeout(opened.timer);
        if (open.get(key) === ready.promise) open.delete(key);
        over.resolve();
      };
      const opened: Opened = {
        written,
        chunks: new Map([...chunksToSend(sources)].map((chunk) => [chunk.sha256, chunk])),
        reads: 0,
        timer: setTimeout(() => (opened.reads === 0 ? close() : opened.timer.refresh()), IDLE_MS).unref(),
        close,
      };
      ready.resolve(opened);
      await over.promise;
    })
      .catch((error: unknown) => {
        if (open.get(key) === ready.promise) open.delete(key);
        ready.reject(error);
      })
      .finally(() => closing.delete(work));
    closing.add(work);
    return ready.promise;
  }

  async function opened(id: string, withBase: boolean): Promise<Opened> {
    const key = `${id} ${withBase}`;
    if (!open.has(key)) await closeUnread();
    const opening = open.get(key) ?? begin(key, id, withBase);
    open.set(key, opening);
    const its = await opening;
    its.timer.refresh();
    return its;
  }

  return {
    find,
    named: (asked) => snapshots.names.get(withTag(asked)),
    wasDeleted: snapshots.wasRemoved,
    manifest: async (id, withBase) => (await opened(id, withBase)).written,
    async chunk(id, withBase, sha256) {
      // A snapshot deleted meanwhile is not transferred any further.
      if (find(id) === undefined) fail("SNAPSHOT_NOT_FOUND", `'${id}' was deleted on node ${parts.nodeID()}`);
      if (reads >= MAX_READS) throw new Failure("TOO_MANY_REQUESTS", `${reads} chunks are being read from this node, the maximum`, { retryAfterSeconds: 1 });
      reads++;
      try {
        const its = await opened(id, withBase);
        const chunk = its.chunks.get(sha256) ?? fail("SNAPSHOT_NOT_FOUND", `chunk ${sha256} is not part of '${id}'`);
        its.reads++;
        try {
          return await pace(chunk.length, () => readChunk(describing.thread, chunk));
        } finally {
          its.reads--;
          its.timer.refresh();
        }
      } finally {
        reads--;
      }
    },
    async close() {
      for (const opening of open.values()) void opening.then(({ close }) => close()).catch(() => undefined);
      await Promise.allSettled(closing);
    },
  };
}

const offerOf = (id: string, isOwn: boolean, originNodeID: string | undefined, createdAtMs: number) => ({
  id,
  isOwn,
  ...(isOwn || originNodeID === undefined ? {} : { originNodeID }),
  createdAtMs,
});
