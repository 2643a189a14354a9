// Exports a snapshot as one file and imports it, on a node of the same or another deployment.
import { Failure, fail } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Report } from "../observe/open-observe.ts";
import type { Checkpoints } from "../records/checkpoints.ts";
import { type NamedSnapshot, type Snapshots, withTag } from "../records/snapshots.ts";
import type { TemplateSource } from "../template/template.ts";
import { readArchive } from "./archive-read.ts";
import { archiveBytes, writeArchive } from "./archive-write.ts";
import type { ChunkThread } from "./chunk-thread.ts";
import { type Described, type DescribeParts, describe, readChunk } from "./describe.ts";
import { chunksOf, type Deployment, filesOf, type ReadManifest, readManifest, writeManifest } from "./manifest.ts";
import type { Placing } from "./placing.ts";
import { type Received, type ReceiveParts, receive } from "./receive.ts";
import { snapshotOf, snapshotSubject } from "./subjects.ts";
import type { TransferMetrics } from "./transfer-metrics.ts";

/** Bounds the concurrent files, since each uses a connection, a few chunks of memory and disk space. */
const FILES_AT_ONCE = 4;

export type SnapshotFile = {
  readonly snapshotID: string;
  readonly bytes: number;
  readonly body: AsyncGenerator<Buffer>;
  /** When the last part was read, by performance.now(). */
  takenAtMs(): number;
  /** Releases the snapshot's files; also required if the body was never read. */
  close(): void;
};
export type Imported = { readonly snapshot: NamedSnapshot; readonly isNew: boolean };

export interface SnapshotFiles {
  /**
   * The snapshot's files are kept until close(), even if it is deleted. @throws SNAPSHOT_NOT_FOUND, SNAPSHOT_DAMAGED, CHECKPOINT_UNAVAILABLE,
   * TOO_MANY_REQUESTS.
   */
  export(asked: string, withBase: boolean): Promise<SnapshotFile>;
  /**
   * `name` replaces its own name. A snapshot that is already here is left unchanged. @throws what `receive` and `readArchive` throw; nothing is left
   * then.
   */
  import(body: AsyncIterable<Buffer>, name: string | undefined): Promise<Imported>;
  /**
   * Records what was received under its id. A snapshot from a file, or one that this node took, also gets `name` or the first of its names that is
   * free; a snapshot of another node gets no name here, since that node decides about its names.
   */
  keep(read: ReadManifest, received: Received, from: "file" | "storage" | "node", name?: string): Promise<NamedSnapshot>;
}

export type SnapshotFilesParts = {
  readonly nodeID: () => string;
  readonly snapshots: Pick<Snapshots, "find" | "add" | "names">;
  readonly templateIndex: Pick<TemplateSource, "bears">;
  readonly checkpoints: Pick<Checkpoints, "holding" | "remove">;
  readonly describing: DescribeParts;
  readonly receiving: ReceiveParts;
  readonly thread: ChunkThread;
  readonly deployment: Deployment;
  readonly metrics: Pick<TransferMetrics, "timed">;
  readonly report: Report;
  readonly log: Log;
};

export function openSnapshotFiles(parts: SnapshotFilesParts): SnapshotFiles {
  const { snapshots, checkpoints, thread, deployment, metrics, report, log } = parts;
  let underWay = 0;

  async function admitted<T>(work: () => Promise<T>): Promise<T> {
    if (underWay >= FILES_AT_ONCE)
      throw new Failure("TOO_MANY_REQUESTS", `${underWay} exports and imports of files are in progress, the maximum; try again later`, {
        retryAfterSeconds: 5,
      });
    underWay++;
    try {
      return await work();
    } finally {
      underWay--;
    }
  }

  /** Returns the snapshot that has the name here or, as far as this node knows, on another node. */
  const bearerOf = (name: string) => snapshots.find(name)?.snapshotID ?? (snapshots.names.get(withTag(name))?.snapshotID || undefined);

  async function keep({ manifest, isOwn }: ReadManifest, received: Received, from: "file" | "storage" | "node", name?: string): Promise<NamedSnapshot> {
    const originNodeID = from === "file" || manifest.snapshot?.originNodeID === parts.nodeID() ? undefined : (manifest.snapshot?.originNodeID ?? "");
    const arrived = { ...snapshotOf(manifest, received), originNodeID };
    // A file may come from anywhere, and must not give a tenant anything.
    const snapshot = from === "file" ? { ...arrived, tenant: undefined } : arrived;
    const known = snapshots.find(snapshot.snapshotID);
    if (known !== undefined) {
      // The same snapshot arrived by another path meanwhile.
      await checkpoints.remove(received.checkpointID);
      return known;
    }
    const isFree = (each: string) => bearerOf(each) === undefined && !parts.templateIndex.bears(each.split(":")[0] ?? "");
    try {
      snapshots.add(snapshot, originNodeID === undefined ? (name ?? manifest.snapshot?.names.find(isFree)) : undefined);
    } catch (error) {
      await checkpoints.remove(received.checkpointID);
      throw error;
    }
    const { sizeBytes, movedBytes } = received;
    report("snapshot.imported", { templateID: snapshot.snapshotID }, { from, sizeBytes, movedBytes, deployment: isOwn ? "own" : "another" });
    log.info({ snapshotID: snapshot.snapshotID, sizeBytes, movedBytes }, "a snapshot was imported");
    return snapshots.find(snapshot.snapshotID) as NamedSnapshot;
  }

  return {
    keep,
    async export(asked, withBase) {
      const snapshot = snapshots.find(asked) ?? fail("SNAPSHOT_NOT_FOUND", `snapshot '${asked}' was not found; \`svc snapshot list\` lists them`);
      const { snapshotID, checkpointID } = snapshot;
      const ready = Promise.withResolvers<Described>();
      const over = Promise.withResolvers<void>();
      void admitted(() =>
        checkpoints.holding(checkpointID, () =>
          metrics.timed("export", async () => {
            await using described = await describe(parts.describing, snapshotSubject(snapshot), withBase ? parts.describing.packs.describeBase : undefined);
            ready.resolve(described);
            await over.promise;
          }),
        ),
      ).catch(ready.reject);
      const described = await ready.promise;
      const written = writeManifest(described.manifest, deployment.key);
      const bytes = archiveBytes(written, described.sources);
      let takenAtMs = performance.now();
      const body = async function* () {
        for await (const part of writeArchive(written, described.sources, (chunk) => readChunk(thread, chunk))) {
          takenAtMs = performance.now();
          yield part;
        }
        report("snapshot.exported", { templateID: snapshotID }, { bytes });
        log.info({ snapshotID, bytes }, "a snapshot was exported as a file");
      };
      return { snapshotID, bytes, body: body(), takenAtMs: () => takenAtMs, close: () => over.resolve() };
    },
    import: (body, name) =>
      admitted(() =>
        metrics.timed("import", async () => {
          if (name !== undefined && parts.templateIndex.bears(name.split(":")[0] ?? ""))
            fail("INVALID_REQUEST", `name: '${name}' is the name of a template; choose another`);
          const archive = readArchive(body);
          const read = readManifest(await archive.manifest(), deployment);
          const { manifest } = read;
          if (manifest.snapshot === undefined) fail("INVALID_REQUEST", "the file is not an exported snapshot");
          const known = snapshots.find(manifest.snapshot.snapshotID);
          const named = new Set<string>();
          for (const file of filesOf(manifest)) for (const { sha256 } of chunksOf(file)) named.add(sha256);
          const take = async (place: (sha256: string, bytes: Buffer) => Promise<void>) => {
            for await (const { sha256, bytes } of archive.chunks()) {
              // The file contains all chunks, including those that are already here; a chunk outside the manifest is an error.
              if (!named.delete(sha256)) fail("INVALID_REQUEST", `the file holds chunk ${sha256}, which its manifest does not name, or names once`);
              await place(sha256, bytes);
            }
          };
          if (known !== undefined) {
            // The file is verified although its snapshot is already here, so that its owner learns if it is damaged.
            await take((sha256, bytes) => verify(thread, sha256, bytes));
            const [missing] = named;
            if (missing !== undefined)
              fail("SNAPSHOT_DAMAGED", `the file lacks chunk ${missing}, and ${named.size - 1} more; the snapshot already existed and was not changed`);
            return { snapshot: known, isNew: false };
          }
          const bearer = name === undefined ? undefined : bearerOf(name);
          if (bearer !== undefined) fail("INVALID_REQUEST", `name: '${name}' is the name of snapshot ${bearer}; choose another, or delete that one first`);
          const received = await receive(parts.receiving, read, (placing: Placing) => take((sha256, bytes) => placing.place(sha256, bytes)));
          return { snapshot: await keep(read, received, "file", name), isNew: true };
        }),
      ),
  };
}

async function verify(thread: ChunkThread, sha256: string, bytes: Buffer): Promise<void> {
  if (!(await thread.place([], bytes, sha256))) fail("SNAPSHOT_DAMAGED", `chunk ${sha256} of the file is not what was written: its checksum differs`);
}
