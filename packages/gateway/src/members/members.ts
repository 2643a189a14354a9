// All nodes of the deployment: which are up, which node has each sandbox, and whether their secrets agree.
import type { ClusterFrame, NameRecord, SandboxIDs, StateFrame } from "@svc/contract/cluster.ts";
import { slotOf } from "@svc/contract/cluster-records.ts";
import type { SharedSandbox, StoredSnapshot, StoredTemplate } from "@svc/contract/shared-records.ts";
import type { Log } from "@svc/kit/log.ts";
import type { PeerClient } from "@svc/kit/peers/peer-client.ts";
import type { Target } from "@svc/kit/proxy/target.ts";
import { fingerprintOf } from "@svc/kit/secret.ts";
import { Departures } from "./departures.ts";
import { type Down, Link, type LinkOptions, type Stream } from "./link.ts";
import { Member } from "./member.ts";
import { Names } from "./names.ts";

/** A node to follow; `slot` is given for a node of a deployment in etcd. */
export type Known = { readonly url: string; readonly slot?: number | undefined; readonly nodeID?: string | undefined };

export type MembersOptions = {
  readonly apiKey: string;
  readonly domain: () => string;
  readonly log: Log;
  /** A node that sends nothing for this long counts as lost until it does. */
  readonly silenceMs: number;
  readonly peers?: PeerClient | undefined;
  readonly openTarget: (member: () => Member) => Target;
  /** Creates the stream from a node; by default it is a connection. Simulations pass their own. */
  readonly newLink?: (options: LinkOptions) => Stream;
  /** Called when capacity may have been freed for creates that wait. */
  readonly onCapacity: () => void;
  readonly onLost: (member: Member, reason: string) => void;
  /** With etcd, returns the removed node whose ids carry this slot. */
  readonly removedNode: (slot: number) => string | undefined;
};

/** Bounds the ids of ended sandboxes that are remembered with the node that knows why; the newest ones are kept. */
const MAX_GONE = 100_000;

export class Members {
  #all: readonly Member[] = [];
  readonly #options: MembersOptions;
  readonly #links = new Map<Member, Stream>();
  readonly #owners = new Map<string, Member>();
  readonly #gone = new Map<string, Member>();
  /** Sandboxes that are moving from one node to another. */
  readonly departures = new Departures();
  /** The records in etcd of sandboxes that can move. */
  readonly moved = new Map<string, SharedSandbox>();
  /** The records in etcd of snapshots and templates in object storage. */
  readonly stored = { snapshots: new Map<string, StoredSnapshot>(), templates: new Map<string, StoredTemplate>() };
  readonly names: Names;
  readonly #byNodeID = new Map<string, Member>();
  /** Members by the slot that their ids carry. */
  readonly #slots = new Map<number, Member>();
  readonly #apiKeyFingerprint: string;
  /** The seed's fingerprint of the first node that was up; all others must have the same. */
  #seed: { readonly fingerprint: string; readonly nodeID: string } | undefined;

  constructor(options: MembersOptions) {
    this.#options = options;
    this.names = new Names(options);
    this.#apiKeyFingerprint = fingerprintOf(options.apiKey, "api-key");
  }

  get all(): readonly Member[] {
    return this.#all;
  }

  /** Starts to follow a node. */
  add({ url, slot, nodeID }: Known): Member {
    const { apiKey, domain, silenceMs, openTarget, peers, newLink = (options) => new Link(options) } = this.#options;
    const bears = (name: string, snapshotID: string) => this.names.bears(name, snapshotID);
    const target = openTarget(() => member);
    const member: Member = new Member(url, target, nodeID, bears, peers);
    this.#all = [...this.#all, member];
    if (slot !== undefined) this.#slots.set(slot, member);
    if (nodeID !== undefined) this.#byNodeID.set(nodeID, member);
    const link = newLink({
      url,
      peers: member.peers,
      apiKey,
      domain,
      silenceMs,
      onFrame: (frame) => this.#take(member, frame),
      onDown: (reason, how) => this.#down(member, reason, how),
    });
    this.#links.set(member, link);
    link.open();
    return member;
  }

  /** Stops following a node that is no longer a member, or that has moved to another URL. */
  remove(member: Member): void {
    this.#all = this.#all.filter((each) => each !== member);
    this.#links.get(member)?.close();
    this.#links.delete(member);
    this.#forgetAll(member);
    this.names.forget(member);
    for (const [id, each] of this.#gone) if (each === member) this.#gone.delete(id);
    for (const [slot, each] of this.#slots) if (each === member) this.#slots.delete(slot);
    for (const [nodeID, each] of this.#byNodeID) if (each === member) this.#byNodeID.delete(nodeID);
    this.departures.lose(member);
    member.lose({ state: "lost", reason: "it is not part of the deployment any more", sinceMs: Date.now() });
    member.target.drop();
  }

  close(): void {
    for (const link of this.#links.values()) link.close();
  }

  get up(): readonly Member[] {
    return this.all.filter((member) => member.isUp);
  }

  /** Looks a node up by its name or URL. */
  named(name: string): Member | undefined {
    return this.all.find((member) => member.nodeID === name) ?? this.all.find((member) => member.url === name);
  }

  /**
   * Returns the node that has or had a sandbox: first according to the streams of nodes that are up, then to etcd, then by the slot in its id.
   * `but` is a target to skip, because its node says that the sandbox moved.
   */
  ownerOf(sandboxID: string, but?: Target): Member | undefined {
    const other = (member: Member | undefined) => (but === undefined || member?.target !== but ? member : undefined);
    const reporting = other(this.#owners.get(sandboxID));
    if (reporting?.isUp === true) return reporting;
    const record = this.moved.get(sandboxID);
    const onRecord = record === undefined ? undefined : other(this.#byNodeID.get(record.nodeID));
    return onRecord ?? reporting ?? other(this.#gone.get(sandboxID)) ?? other(this.#slots.get(slotOf(sandboxID) ?? -1));
  }

  /** Returns the node whose stream reports the sandbox. */
  holderOf(sandboxID: string): Member | undefined {
    return this.#owners.get(sandboxID);
  }

  /** Returns the member that etcd records under this node name. */
  onRecord(nodeID: string): Member | undefined {
    return this.#byNodeID.get(nodeID);
  }

  /**
   * Says why a sandbox that no node has may still exist: its node was removed with its data, or some nodes do not answer. Returns "" if it is gone.
   */
  whyUncertain(sandboxID: string): string {
    const slot = slotOf(sandboxID);
    const removed = slot === undefined ? undefined : this.#options.removedNode(slot);
    if (removed !== undefined)
      return `its node ${removed} was removed from the deployment; if it was paused, it is there again once that node is back with its home`;
    const missing = this.all.filter((member) => !member.isUp);
    return missing.length === 0 ? "" : `it may be on one that does not answer: ${missing.map(({ name, reason }) => `${name} (${reason})`).join(", ")}`;
  }

  /** The node behind `target` answered that it no longer has the sandbox; its stream may lag behind. */
  left(sandboxID: string, target: Target): void {
    if (this.#owners.get(sandboxID)?.target === target) this.#owners.delete(sandboxID);
  }

  /** Records what a node answered to a lookup or a create; its stream may lag behind. */
  learn(sandboxID: string, member: Member): void {
    if (!this.#owners.has(sandboxID)) this.#remember(sandboxID, member);
  }

  /** A node has taken the sandbox over; its stream may lag behind. */
  arrived(sandboxID: string, member: Member): void {
    this.#own(sandboxID, member);
  }

  /** The sandbox was ended by a node that never had it. */
  ended(sandboxID: string, by: Member): void {
    const holder = this.#owners.get(sandboxID);
    holder?.paused.delete(sandboxID);
    this.#owners.delete(sandboxID);
    this.moved.delete(sandboxID);
    this.#remember(sandboxID, by);
  }

  #take(member: Member, frame: ClusterFrame): void {
    switch (frame.kind) {
      case "state":
        this.#takeState(member, frame);
        break;
      case "change":
        this.#takeChange(member, frame.sandboxes);
        member.takeOwned(frame.sandboxes);
        break;
      case "templates":
        member.takeTemplates(frame);
        this.names.take(member, namesHeld(member), false, this.up);
        break;
      case "names":
        this.names.take(member, frame.names, false, this.up);
        break;
      case "beat":
        member.load = frame.load;
        // The node may have been full only because of its pending starts, so the next create may try it again.
        member.isFull = false;
        break;
    }
    this.#options.onCapacity();
  }

  #takeState(member: Member, frame: StateFrame): void {
    const refusal = this.#refusalOf(member, frame);
    if (refusal !== undefined) {
      if (member.status.state !== "refused" || member.reason !== refusal) this.#options.log.error({ node: frame.node.nodeID, url: member.url }, refusal);
      this.#forgetAll(member);
      member.lose({ state: "refused", reason: refusal });
      this.#links.get(member)?.reject(refusal);
      return;
    }
    this.#seed ??= { fingerprint: frame.node.fingerprints.seed, nodeID: frame.node.nodeID };
    this.#forgetAll(member);
    member.takeState(frame);
    this.names.take(member, frame.names, true, this.up);
    this.names.take(member, namesHeld(member), false, this.up);
    for (const ids of [frame.sandboxes.running, frame.sandboxes.paused]) for (const id of ids) this.#own(id, member);
    for (const id of frame.sandboxes.leaving) this.departures.begin(id, member);
    this.#options.log.info({ node: member.name, url: member.url, sandboxes: member.running.size, generation: frame.node.generation }, "the node is up");
  }

  #refusalOf(member: Member, { node: { nodeID, fingerprints } }: StateFrame): string | undefined {
    const namesake = this.all.find((each) => each !== member && each.isUp && each.identity?.nodeID === nodeID);
    if (namesake !== undefined)
      return `node ${nodeID} at ${member.url} is refused: ${namesake.url} is up under the same name; give each node its own --home, or remove node-id from a copied one`;
    if (fingerprints.apiKey !== this.#apiKeyFingerprint) {
      return `node ${nodeID} at ${member.url} is refused: its API key has the fingerprint ${fingerprints.apiKey}, this gateway's has ${this.#apiKeyFingerprint}; give all the same SVC_API_KEY`;
    }
    const seed = this.#seed;
    if (seed !== undefined && seed.fingerprint !== fingerprints.seed) {
      return `node ${nodeID} at ${member.url} is refused: its seed of tokens has the fingerprint ${fingerprints.seed}, that of node ${seed.nodeID} has ${seed.fingerprint}; give all nodes the same SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED`;
    }
    return undefined;
  }

  #takeChange(member: Member, { running, paused, gone, leaving }: SandboxIDs): void {
    for (const id of leaving) this.departures.begin(id, member);
    for (const id of running) {
      member.paused.delete(id);
      member.running.add(id);
      this.#own(id, member);
    }
    for (const id of paused) {
      member.running.delete(id);
      member.paused.add(id);
      this.#own(id, member);
    }
    for (const id of gone) {
      for (const ids of [member.running, member.paused, member.owned]) ids.delete(id);
      const isElsewhere = this.#owners.has(id) ? this.#owners.get(id) !== member : this.#gone.has(id);
      if (!isElsewhere) {
        this.#owners.delete(id);
        this.#remember(id, member);
      }
      this.departures.left(id, member);
    }
    if (paused.length + gone.length > 0) member.isFull = false;
  }

  #own(id: string, member: Member): void {
    this.#owners.set(id, member);
    this.#gone.delete(id);
    this.departures.end(id);
  }

  #remember(id: string, member: Member): void {
    this.#gone.delete(id);
    this.#gone.set(id, member);
    if (this.#gone.size > MAX_GONE) this.#gone.delete(this.#gone.keys().next().value as string);
  }

  #forgetAll(member: Member): void {
    for (const ids of [member.running, member.paused]) for (const id of ids) if (this.#owners.get(id) === member) this.#owners.delete(id);
  }

  /** The sandboxes of the lost node stay known, so that requests for them get its reason. */
  #down(member: Member, reason: string, how: Down): void {
    const { status } = member;
    if (status.state !== "up") {
      // A node refused because of its state frame stays refused until it sends another one.
      if (how === "refused" && status.state !== "refused") this.#options.log.error({ url: member.url }, `node ${member.name} at ${member.url}: ${reason}`);
      if (how === "refused") member.status = { state: "refused", reason };
      else if (status.state !== "refused") member.status = { ...status, reason };
      return;
    }
    member.lose({ state: "lost", reason, sinceMs: Date.now() });
    this.departures.lose(member);
    this.#options.log.warn({ node: member.name, url: member.url, sandboxes: member.running.size }, `the node is lost: ${reason}`);
    // A slow node may still finish answers that it has begun; after a broken stream nothing more can come.
    if (how === "silent") member.target.dropWaiting();
    else member.target.drop();
    this.#options.onLost(member, reason);
  }
}

/** Derives the name records of snapshots taken on a node of an earlier version, which sends no name records. */
function namesHeld({ name: nodeID, identity, templates }: Member): NameRecord[] {
  if (identity?.settlesNames === true) return [];
  const own = templates.filter(({ kind, originNodeID }) => kind === "snapshot" && originNodeID === undefined);
  return own.flatMap(({ names, templateID, createdAtMs }) => names.map((name) => ({ name, atMs: createdAtMs, snapshotID: templateID, nodeID })));
}
