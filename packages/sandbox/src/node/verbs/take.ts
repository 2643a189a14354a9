// Takes over a paused sandbox of another node: fetches all of it, claims it by a compare-and-set in etcd, then records it here.
import type { takeSandbox } from "@svc/contract/cluster.ts";
import { asFailure, Failure, fail } from "@svc/contract/failures.ts";
import type { Output } from "@svc/contract/operation.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Membership } from "../../cluster/join.ts";
import type { Report } from "../../observe/open-observe.ts";
import type { Quarantine } from "../../records/quarantine.ts";
import type { Records } from "../../records/records.ts";
import { isOwned, type Registry } from "../../records/registry.ts";
import type { SnapshotTransfer } from "../../snapshot-transfer/open-snapshot-transfer.ts";
import type { Capacity } from "../supply/capacity.ts";
import type { Claims } from "./claims.ts";
import type { ResumeSandbox } from "./resume.ts";

export type Taken = Output<typeof takeSandbox>;

export type TakeParts = {
  readonly apiKey: string;
  readonly membership: Pick<Membership, "ownership" | "shared" | "members" | "peers"> | undefined;
  readonly transfer: Pick<SnapshotTransfer, "importSandbox" | "endSandbox" | "exports">;
  readonly registry: Pick<Registry, "get" | "owned">;
  readonly records: Pick<Records, "ended">;
  readonly quarantine: Pick<Quarantine, "find">;
  readonly claims: Pick<Claims, "arrive">;
  readonly resume: ResumeSandbox;
  readonly capacity: Pick<Capacity, "check">;
  readonly report: Report;
  readonly log: Log;
};

export interface Takes {
  /** Returns when the sandbox is here; with a timeout it is resumed as well. @throws the failures that `takeSandbox` lists. */
  take(sandboxID: string, timeoutSeconds?: number): Promise<Taken>;
  /**
   * Ends a sandbox of a node that does not serve: its record and its export are removed, and nothing of it is fetched. `deadNodeID` names
   * the node of one that was not exported; that node removes it when it returns.
   */
  end(sandboxID: string, deadNodeID?: string): Promise<void>;
  /** Reconciles etcd's records that name this node with the sandboxes that are here; the node may have been away for long. */
  start(): Promise<void>;
}

/** The maximum number of concurrent takeovers; each writes a sandbox's memory to this disk. */
const MAX_AT_ONCE = 8;

export function openTake(parts: TakeParts): Takes {
  const { apiKey, membership, transfer, registry, records, quarantine, claims, resume, capacity, log } = parts;
  /** The takeovers under way, by id; further requests for the same sandbox wait for them. */
  const underWay = new Map<string, Promise<number>>();

  async function fetch(sandboxID: string): Promise<number> {
    const begin = performance.now();
    const { ownership, members, peers } = membership ?? standsAlone();
    // The sandbox has ended here and etcd may not know it yet, or its record here is quarantined: `owned` throws the matching failure.
    if (records.ended(sandboxID) !== undefined || quarantine.find("sandbox", sandboxID) !== undefined) registry.owned(sandboxID);
    const manifest = await ownership.takeable(sandboxID);
    log.debug({ stage: "take-import", sandboxID }, "stage begins");
    // Object storage has all of it; the owner is only a faster source, so a failure to find it is ignored.
    const url = await ownership
      .ownerOf(sandboxID)
      .then((holder) => (holder === undefined ? undefined : members.urlOf(holder)))
      .catch(() => undefined);
    const own = async () => {
      log.debug({ stage: "take-own", sandboxID }, "stage begins");
      await ownership.take(sandboxID, manifest);
      log.debug({ stage: "take-record", sandboxID }, "stage begins");
    };
    await transfer.importSandbox(manifest, own, url === undefined ? undefined : { url, apiKey, fetch: peers.fetch.bind(peers) });
    return Math.round(performance.now() - begin);
  }

  async function arrive(sandboxID: string): Promise<number> {
    if (isOwned(registry.get(sandboxID))) return 0;
    const known = underWay.get(sandboxID);
    if (known !== undefined) return known;
    capacity.check();
    if (underWay.size >= MAX_AT_ONCE)
      throw new Failure("TOO_MANY_REQUESTS", `${underWay.size} sandboxes are moving to this node, the maximum; try again`, { retryAfterSeconds: 1 });
    const fetching = fetch(sandboxID).finally(() => underWay.delete(sandboxID));
    underWay.set(sandboxID, fetching);
    return fetching;
  }

  return {
    async take(sandboxID, timeoutSeconds) {
      if (timeoutSeconds === undefined) return { importMs: await arrive(sandboxID), resumeMs: 0 };
      // Requests wait until the sandbox runs, instead of finding it paused in between.
      const arrived = claims.arrive(sandboxID);
      try {
        const importMs = await arrive(sandboxID);
        const begin = performance.now();
        const resumeFailed = await resume(sandboxID, { timeoutSeconds, cause: "request" }).then(
          () => undefined,
          (error: unknown) => asFailure(error).message,
        );
        return { importMs, resumeMs: Math.round(performance.now() - begin), ...(resumeFailed === undefined ? {} : { resumeFailed }) };
      } finally {
        arrived();
      }
    },
    async end(sandboxID, deadNodeID) {
      const { ownership } = membership ?? standsAlone();
      if (underWay.has(sandboxID) || registry.get(sandboxID) !== undefined || quarantine.find("sandbox", sandboxID) !== undefined)
        fail("SANDBOX_CHANGING_STATE", `sandbox '${sandboxID}' came to this node in the meantime; try again`);
      if (deadNodeID !== undefined) {
        await ownership.bury(sandboxID, deadNodeID);
        parts.report("sandbox.ended", { sandboxID }, { reason: "killed" });
        log.info({ sandboxID, nodeID: deadNodeID }, "a sandbox of a dead node was ended");
        return;
      }
      const manifest = await ownership.takeable(sandboxID);
      // From here on no other node resumes it. After a kill before the end, it counts as a sandbox that this node took over.
      await ownership.take(sandboxID, manifest);
      await transfer.endSandbox(manifest);
      parts.report("sandbox.ended", { sandboxID }, { reason: "killed" });
      log.info({ sandboxID }, "a paused sandbox of another node was ended");
    },
    async start() {
      if (membership === undefined) return;
      const { ownership, shared } = membership;
      for (const [sandboxID, { takenFrom }] of shared) {
        if (!takenFrom.includes(ownership.nodeID) || registry.get(sandboxID) !== undefined) continue;
        await ownership
          .gaveUp(sandboxID)
          .catch((error: unknown) => log.warn({ err: error, sandboxID }, "a record of a sandbox that left could not be changed"));
      }
      for (const sandboxID of [...ownership.mine]) {
        if (registry.get(sandboxID) !== undefined || quarantine.find("sandbox", sandboxID) !== undefined) continue;
        // If it ended here, exports remove its record. Otherwise a kill interrupted a takeover before the sandbox was recorded.
        if ((await transfer.exports?.has(sandboxID)) === true) continue;
        const isTaken = shared.get(sandboxID)?.manifest !== undefined;
        const work = isTaken ? arrive(sandboxID) : ownership.forget(sandboxID);
        await work.catch((error: unknown) =>
          log.warn({ err: error, sandboxID }, "a sandbox that etcd lists as this node's is not here; it is fetched when a client needs it"),
        );
      }
    },
  };
}

const standsAlone = (): never => fail("INVALID_REQUEST", "this node runs alone: sandboxes move between the nodes of a deployment (cluster.etcd)");
