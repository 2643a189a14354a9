// Brings a paused sandbox to a node that can resume it, if its node drains, was stopped or is dead, and waits for a sandbox that is moving.
import { call } from "@svc/contract/call.ts";
import { takeSandbox } from "@svc/contract/cluster.ts";
import { asFailure, Failure, type FailureName } from "@svc/contract/failures.ts";
import { moveSandbox } from "@svc/contract/lifecycle.ts";
import type { SharedSandbox } from "@svc/contract/shared-records.ts";
import type { Log } from "@svc/kit/log.ts";
import type { EtcdDirectory } from "./etcd-directory.ts";
import type { Member } from "./member.ts";
import type { Members } from "./members.ts";

export type ArrivalsOptions = {
  readonly members: Members;
  readonly apiKey: string;
  /** Returns undefined if the nodes are a fixed list; sandboxes never move then. */
  readonly directory: () => EtcdDirectory | undefined;
  readonly log: Log;
};

const MAX_AT_ONCE = 64;
const MAX_TRIES = 3;
const TAKE_MS = 15 * 60_000;
/** After a failure the sandbox's own node answers for it during this time; if no node is up, the same failure is thrown. */
const COOL_DOWN_MS = 1_000;
/** Another node may succeed after one of these failures, since they depend on the node. */
const nodesOwn = new Set<FailureName>(["CAPACITY_EXHAUSTED", "TOO_MANY_REQUESTS", "SNAPSHOT_UNSUITABLE", "DISK_FULL", "SERVER_UNREACHABLE", "SHUTTING_DOWN"]);

export class Arrivals {
  readonly #options: ArrivalsOptions;
  readonly #underWay = new Map<string, Promise<void>>();
  readonly #failed = new Map<string, Failure>();

  constructor(options: ArrivalsOptions) {
    this.#options = options;
  }

  get waiting(): number {
    return this.#underWay.size;
  }

  /** Returns true if a request has to wait for `bring`. For a running sandbox this costs a few map lookups. */
  isNeeded(sandboxID: string): boolean {
    const { members, directory } = this.#options;
    if (directory() === undefined) return false;
    if (this.#failed.has(sandboxID)) return members.ownerOf(sandboxID)?.isUp !== true;
    if (members.departures.of(sandboxID) !== undefined || this.#underWay.has(sandboxID)) return true;
    const holder = members.holderOf(sandboxID);
    if (holder?.isUp === true) return isDrained(holder, sandboxID);
    return this.#isTakeable(members.moved.get(sandboxID));
  }

  /** Returns the manifest of a paused sandbox that is in object storage while its node does not answer, according to etcd and to that node's last report. */
  storedAs(sandboxID: string): string | undefined {
    const { members } = this.#options;
    const holder = members.holderOf(sandboxID);
    const isAway = holder === undefined || (!holder.isUp && holder.paused.has(sandboxID));
    if (!isAway || this.#underWay.has(sandboxID) || members.departures.of(sandboxID) !== undefined) return undefined;
    const record = members.moved.get(sandboxID);
    return record === undefined || members.onRecord(record.nodeID)?.isUp === true ? undefined : record.manifest;
  }

  /** Returns a node that can end a paused sandbox whose node does not serve; undefined if a node that is up has it, or it is moving. */
  enderOf(sandboxID: string): Member | undefined {
    const { members, directory } = this.#options;
    const isOnItsWay = members.departures.of(sandboxID) !== undefined || this.#underWay.has(sandboxID);
    const record = members.moved.get(sandboxID);
    if (directory() === undefined || isOnItsWay || members.holderOf(sandboxID)?.isUp === true || !this.#isTakeable(record)) return undefined;
    const owner = members.onRecord(record?.nodeID ?? "");
    return (owner?.isUp === true ? [owner] : members.up).find(({ identity }) => identity?.endsSandboxes === true);
  }

  /** Finds a node that can record the end of a sandbox whose own node was declared dead and that was not exported. */
  graveOf(sandboxID: string): { readonly ender: Member; readonly nodeID: string } | undefined {
    const { members, directory } = this.#options;
    const owner = members.ownerOf(sandboxID);
    if (owner?.nodeID === undefined || owner.isUp || directory()?.isDead(owner) !== true) return undefined;
    const ender = members.up.find(({ identity }) => identity?.endsSandboxes === true);
    return ender === undefined ? undefined : { ender, nodeID: owner.nodeID };
  }

  #isTakeable(record: SharedSandbox | undefined): boolean {
    if (record?.manifest === undefined) return false;
    const { members, directory } = this.#options;
    const owner = members.onRecord(record.nodeID);
    // A node that this gateway has only begun to contact is not away. A node that can reach the owner refuses to take the sandbox over.
    const isAway = owner !== undefined && !owner.isUp && !owner.isNew;
    return record.isOffered || owner?.isUp === true || isAway || directory()?.serves(record.nodeID) !== true;
  }

  /** When this returns, the streams say that the sandbox is on a node that is up. @throws TOO_MANY_REQUESTS, and what the nodes throw. */
  async bring(sandboxID: string): Promise<void> {
    const leaving = this.#options.members.departures.of(sandboxID);
    if (leaving !== undefined) return leaving;
    let working = this.#underWay.get(sandboxID);
    if (working === undefined) {
      const failed = this.#failed.get(sandboxID);
      if (failed !== undefined) throw failed;
      if (this.#underWay.size >= MAX_AT_ONCE)
        throw new Failure("TOO_MANY_REQUESTS", "the maximum number of sandboxes is moving to other nodes; try again", { retryAfterSeconds: 1 });
      working = this.#bring(sandboxID).finally(() => this.#underWay.delete(sandboxID));
      this.#underWay.set(sandboxID, working);
    }
    return working;
  }

  async #bring(sandboxID: string): Promise<void> {
    const { members, apiKey, log } = this.#options;
    try {
      const holder = members.holderOf(sandboxID);
      if (holder?.isUp === true) {
        await call(moveSandbox, { sandboxID }, { baseURL: holder.url, apiKey, send: holder.peers.send, timeoutMs: TAKE_MS, signal: holder.signal }).catch(
          unlessMoved,
        );
        return await members.departures.of(sandboxID);
      }
      const taker = await this.#take(sandboxID, members.moved.get(sandboxID)?.nodeID);
      members.arrived(sandboxID, taker);
      log.info({ sandboxID, node: taker.name }, "a sandbox was brought to another node");
    } catch (error) {
      this.#failed.set(sandboxID, asFailure(error));
      setTimeout(() => this.#failed.delete(sandboxID), COOL_DOWN_MS).unref();
      log.warn({ sandboxID, err: error }, "a paused sandbox could not be brought to another node");
      throw error;
    }
  }

  /** The owner takes the sandbox if it is up, as it took it before a restart; otherwise the node with the most free capacity does. */
  async #take(sandboxID: string, ownerID: string | undefined): Promise<Member> {
    const { members, apiKey } = this.#options;
    const owner = members.onRecord(ownerID ?? "");
    const fit = members.up.filter(({ load }) => load?.isDraining !== true).sort((a, b) => shareUsed(a) - shareUsed(b));
    const asked = owner?.isUp === true && owner.load?.isDraining !== true ? [owner] : fit;
    let last: Failure | undefined;
    let tries = 0;
    for (const member of asked) {
      if (tries === MAX_TRIES) break;
      try {
        await call(takeSandbox, { sandboxID }, { baseURL: member.url, apiKey, send: member.peers.send, timeoutMs: TAKE_MS, signal: member.signal });
        return member;
      } catch (error) {
        const failure = asFailure(error);
        if (!nodesOwn.has(failure.name)) throw failure;
        // A node that is unsuitable refuses at once, so it does not count as a try, and the failure of another node is the more useful one.
        if (failure.name !== "SNAPSHOT_UNSUITABLE") tries++;
        if (failure.name !== "SNAPSHOT_UNSUITABLE" || last === undefined) last = failure;
      }
    }
    throw last ?? new Failure("CAPACITY_EXHAUSTED", "no running node can take it", { retryAfterSeconds: 5 });
  }
}

function unlessMoved(error: unknown): void {
  if (asFailure(error).name !== "SANDBOX_MOVED") throw error;
}

const isDrained = (member: Member, sandboxID: string) => member.load?.isDraining === true && member.paused.has(sandboxID);

/** Returns 0 for an empty node and 1 for a full one, by the scarcest of sandboxes, memory and disk. */
function shareUsed({ running, identity, load }: Member): number {
  if (load === undefined) return 1;
  const { memory, disk } = load;
  return Math.max(running.size / Math.max(1, identity?.maxSandboxes ?? 1), 1 - memory.availableBytes / memory.totalBytes, disk.usedBytes / disk.totalBytes);
}
