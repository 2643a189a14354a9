// Fetches snapshots and builds of templates directly from the node that has them, in a deployment without object storage.

import { isLater, type NameRecord, type OfferAnswer } from "@svc/contract/cluster.ts";
import { asFailure, Failure, type FailureName, fail } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import { type Snapshots, withTag } from "../records/snapshots.ts";
import type { Copies } from "../template/copies.ts";
import { type ArriveBuildParts, arriveBuild } from "./arrive-build.ts";
import type { LocalChunks } from "./local-chunks.ts";
import { type Deployment, othersSecrets, readManifest } from "./manifest.ts";
import { askOffer, type Neighbour, type Neighbours, type Offered, openOffered } from "./neighbour.ts";
import { eachAtOnce, openPace } from "./pace.ts";
import type { Placing } from "./placing.ts";
import { hasBase, receive } from "./receive.ts";
import type { SnapshotFiles } from "./snapshot-files.ts";
import { SNAPSHOT_ID } from "./subjects.ts";
import { BUILD_ID, readTemplate } from "./template-manifest.ts";
import type { TransferMetrics } from "./transfer-metrics.ts";

export type FromNodesParts = ArriveBuildParts & {
  readonly apiKey: string;
  readonly neighbours: Neighbours;
  readonly snapshots: Pick<Snapshots, "find" | "list" | "names">;
  readonly copies: Copies;
  readonly files: Pick<SnapshotFiles, "keep">;
  readonly localChunks: LocalChunks;
  readonly deployment: Deployment;
  readonly concurrency: number;
  readonly bytesPerSecond: number;
  readonly metrics: TransferMetrics;
  /** Deletes a copy whose original was deleted. */
  readonly drop: (id: string) => Promise<unknown>;
  readonly log: Log;
};

export interface FromNodes {
  /**
   * Returns the id of what another node has under this id, name or NAME:TAG; it is on this node when this returns. Returns undefined if all nodes
   * answered and none has it. @throws TEMPLATE_NOT_FOUND if some did not answer; TOO_MANY_REQUESTS, SERVER_UNREACHABLE, and what `receive` throws.
   */
  fetch(asked: string): Promise<string | undefined>;
  /** Looks for copies whose originals were deleted, at once and then periodically. */
  start(): void;
  /** Deletes copies whose origin node says that it deleted the original; copies stay if that node does not answer or does not know. */
  dropOver(): Promise<void>;
  close(): Promise<void>;
}

type Offer = NonNullable<OfferAnswer["offer"]>;
type Found = { readonly at: Neighbour; readonly offer: Offer };

/** Bounds the concurrent fetches, each with up to `concurrency` chunks in memory. */
const MAX_AT_ONCE = 4;
/** Bounds the concurrent searches on all nodes for ids and names that are unknown here. */
const MAX_FINDING = 64;
const FETCH_MS = 14 * 60_000;
const FIRST_READ_MS = 5_000;
const LOOK_MS = 10 * 60_000;
/** Failures after which another node that has it may succeed. */
const nodesOwn = new Set<FailureName>(["SERVER_UNREACHABLE", "SNAPSHOT_NOT_FOUND", "SNAPSHOT_DAMAGED", "TOO_MANY_REQUESTS", "SHUTTING_DOWN", "INTERNAL"]);

export function openFromNodes(parts: FromNodesParts): FromNodes {
  // I56
  const { apiKey, neighbours, snapshots, copies, localChunks, deployment, metrics, log } = parts;
  const pace = openPace(parts.bytesPerSecond, parts.concurrency);
  const arriving = new Map<string, Promise<string>>();
  let finding = 0;
  const closing = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  let looking: Promise<void> | undefined;

  const isHere = (id: string) => snapshots.find(id) !== undefined || copies.get(id) !== undefined;

  /** Returns all nodes that have it, the origin first, and the names of nodes that did not answer. */
  async function find(asked: string): Promise<{ readonly found: readonly Found[]; readonly silent: readonly string[] }> {
    await Promise.race([neighbours.read, new Promise((done) => setTimeout(done, FIRST_READ_MS).unref())]);
    const silent = [...neighbours.away];
    const found: Found[] = [];
    const deletedOn = new Set<string>();
    let named: NameRecord | undefined = snapshots.names.get(withTag(asked));
    await eachAtOnce(neighbours.live, MAX_AT_ONCE * 4, async (at) => {
      try {
        const { offer, wasDeleted, named: known } = await askOffer(at, apiKey, asked, closing.signal);
        if (known !== undefined && isLater(known, named)) named = known;
        if (wasDeleted) deletedOn.add(at.nodeID);
        if (offer !== undefined) found.push({ at, offer });
      } catch (error) {
        if (asFailure(error).name === "QUARANTINED") throw error;
        log.warn({ err: error, node: at.nodeID, asked }, "a node did not say whether it has a snapshot or template");
        silent.push(at.nodeID);
      }
    });
    const isID = SNAPSHOT_ID.test(asked) || BUILD_ID.test(asked);
    // A snapshot that lost the name to another one or by a delete does not count, although its node may not know yet.
    const bears = ({ offer }: Found) => offer.isOwn && (!SNAPSHOT_ID.test(offer.id) || named === undefined || offer.id === named.snapshotID);
    const newest = found.filter(bears).sort((a, b) => b.offer.createdAtMs - a.offer.createdAtMs)[0];
    const id = isID ? asked : newest?.offer.id;
    const isMeant = ({ offer }: Found) => offer.id === id && !deletedOn.has(offer.originNodeID ?? "");
    return { found: found.filter(isMeant).sort((a, b) => Number(b.offer.isOwn) - Number(a.offer.isOwn)), silent };
  }

  /** Reads chunks that this node already has locally. */
  async function placeAll(placing: Placing, offered: Offered, moved: { bytes: number }, signal: AbortSignal): Promise<void> {
    const here = await localChunks.all();
    await eachAtOnce([...placing.wanted], parts.concurrency, async ([sha256, length]) => {
      if (signal.aborted) fail("TIMED_OUT", `it was not here after ${FETCH_MS / 1000} s; see objects.bandwidth_mb_per_second`);
      const location = here.get(sha256);
      const own = location?.length === length ? await localChunks.read(location, sha256) : undefined;
      if (own !== undefined) {
        await placing.place(sha256, own);
        return metrics.count("kept", length);
      }
      await pace(length, async () => {
        await placing.place(sha256, await offered.chunk(sha256, length));
        moved.bytes += length;
        metrics.count("peer", length);
      });
    });
  }

  async function fetchFrom({ at, offer: { id } }: Found): Promise<string> {
    const signal = AbortSignal.any([closing.signal, AbortSignal.timeout(FETCH_MS)]);
    const offered = openOffered(at, apiKey, id, signal);
    const where = `node ${at.nodeID}`;
    const moved = { bytes: 0 };
    const begin = performance.now();
    log.debug({ stage: "fetch-manifest", id }, "stage begins");
    const fetch = (placing: Placing) => placeAll(placing, offered, moved, signal);
    /** Discards the fetched data if the origin node says that the original was deleted meanwhile. */
    const mustStill = async () => {
      log.debug({ stage: "fetch-record", id }, "stage begins");
      const still = await askOffer(at, apiKey, id, signal).catch(() => undefined);
      if (still !== undefined && still.offer === undefined) fail("SNAPSHOT_NOT_FOUND", `'${id}' was deleted on ${where} while it was fetched`);
    };
    const isBuild = BUILD_ID.test(id);
    const read = (written: Buffer) => {
      if (isBuild) {
        const template = readTemplate(written, deployment, `what ${where} sent`);
        return template.buildID === id
          ? { template, image: template.memory?.image ?? template.image }
          : fail("SNAPSHOT_DAMAGED", `${where} sent another build`);
      }
      const snapshot = readManifest(written, deployment);
      if (!snapshot.isOwn) othersSecrets(`what ${where} sent`);
      return snapshot.manifest.snapshot?.snapshotID === id
        ? { snapshot, image: snapshot.manifest.image }
        : fail("SNAPSHOT_DAMAGED", `${where} sent another snapshot`);
    };
    let manifest = read(await offered.manifest(false));
    if (manifest.image !== undefined && !(await hasBase(parts.receiving, manifest.image))) manifest = read(await offered.manifest(true));
    const manifestMs = Math.round(performance.now() - begin);
    log.debug({ stage: "fetch-chunks", id }, "stage begins");
    if (manifest.template !== undefined) await arriveBuild(parts, manifest.template, where, fetch, mustStill);
    if (manifest.snapshot !== undefined) {
      const { snapshot } = manifest;
      const received = await metrics.timed("import", () => receive(parts.receiving, snapshot, fetch));
      await mustStill().catch(async (error: unknown) => {
        await parts.checkpoints.remove(received.checkpointID);
        throw error;
      });
      await parts.files.keep(snapshot, { ...received, movedBytes: moved.bytes }, "node");
      await localChunks.note(received.checkpointID, snapshot.manifest.files);
    }
    log.debug({ stage: "fetched", id }, "stage begins");
    log.info({ id, node: at.nodeID, movedBytes: moved.bytes, manifestMs, ms: Math.round(performance.now() - begin) }, "fetched from another node");
    return id;
  }

  async function fetchAny(found: readonly Found[]): Promise<string> {
    let last: Failure | undefined;
    for (const each of found) {
      try {
        return await fetchFrom(each);
      } catch (error) {
        const failure = asFailure(error);
        const said = `'${each.offer.id}' could not be fetched from node ${each.at.nodeID}: ${failure.message}`;
        const retry = failure.retryAfterSeconds === undefined ? {} : { retryAfterSeconds: failure.retryAfterSeconds };
        last = new Failure(failure.name === "SNAPSHOT_NOT_FOUND" ? "TEMPLATE_NOT_FOUND" : failure.name, said, {
          cause: error,
          details: { ...failure.details, node: each.at.nodeID },
          ...retry,
        });
        log.warn({ err: error, id: each.offer.id, node: each.at.nodeID }, "a snapshot or template could not be fetched from another node");
        if (!nodesOwn.has(failure.name)) break;
      }
    }
    throw last ?? new Failure("INTERNAL", "no node was asked");
  }

  async function dropOver(): Promise<void> {
    const all = [
      ...snapshots.list({}).map(({ snapshotID, originNodeID }) => ({ id: snapshotID, originNodeID })),
      ...copies.all().map(({ buildID, originNodeID }) => ({ id: buildID, originNodeID })),
    ];
    for (const { id, originNodeID } of all) {
      if (closing.signal.aborted) return;
      const origin = neighbours.live.find(({ nodeID }) => nodeID === originNodeID);
      if (origin === undefined) continue;
      const answer = await askOffer(origin, apiKey, id, closing.signal).catch(() => undefined);
      // A build can be made again, but a copied snapshot may be the only one left if its origin node has only lost its records.
      if (answer === undefined || answer.offer !== undefined || !(answer.wasDeleted || BUILD_ID.test(id))) continue;
      await parts.drop(id);
      log.info({ id, node: origin.nodeID }, "a copy was dropped: it was deleted on the node that made it");
    }
  }

  function look(): void {
    looking ??= neighbours.read
      .then(dropOver)
      .catch((error: unknown) => log.warn({ err: error }, "it could not be determined which copies were deleted on other nodes"))
      .finally(() => {
        looking = undefined;
      });
  }

  return {
    async fetch(asked) {
      if (finding >= MAX_FINDING)
        throw new Failure("TOO_MANY_REQUESTS", `${finding} searches on other nodes are under way, the maximum; try again`, { retryAfterSeconds: 1 });
      finding++;
      const { found, silent } = await find(asked).finally(() => finding--);
      const [first] = found;
      if (first === undefined) {
        if (silent.length === 0) return undefined;
        const said = `'${asked}' is on no node that answers; ${silent.join(", ")} may have it and cannot be asked, and there is no object storage (objects.url)`;
        throw new Failure("TEMPLATE_NOT_FOUND", said, { details: { node: silent[0] ?? "" } });
      }
      const { id } = first.offer;
      if (isHere(id)) return id;
      // Concurrent creates share one fetch.
      const known = arriving.get(id);
      if (known !== undefined) return known;
      if (arriving.size >= MAX_AT_ONCE)
        throw new Failure("TOO_MANY_REQUESTS", `${arriving.size} snapshots and templates are on their way to this node, the maximum; try again`, {
          retryAfterSeconds: 1,
        });
      const fetching = fetchAny(found).finally(() => arriving.delete(id));
      arriving.set(id, fetching);
      return fetching;
    },
    start() {
      look();
      timer = setInterval(look, LOOK_MS);
      timer.unref();
    },
    dropOver,
    async close() {
      closing.abort();
      clearInterval(timer);
      await Promise.allSettled([...arriving.values(), looking]);
    },
  };
}
