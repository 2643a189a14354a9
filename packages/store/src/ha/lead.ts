// The leader's part of replication: admits standbys to the in-sync set, removes them, and hands over leadership.
import { setTimeout as sleep } from "node:timers/promises";
import { asFailure, fail } from "@svc/contract/failures.ts";
import { LOG_FORMAT, parsed, type StandbyHello, standbyHello } from "./hello.ts";
import { type Known, type Leadership, LOST, type Member } from "./leadership.ts";
import { type HaParts, LEASE_MS, RETRY_MS } from "./parts.ts";

//  peer: hello --admit--> receives what it lacks --caught up--> in the set (etcd) --lost--> out of the set (etcd) --> forgotten
//                                                                               └─ etcd away: nothing is acknowledged ─┘

/** When the last contact with a standby is older than this, the leader contacts etcd to keep its lease. */
const ASK_ETCD_MS = LEASE_MS / 2;
const TICK_MS = 100;
/** The time limit for a new leader to receive the records that are still in flight. */
const HAND_OVER_MS = 2_000;
const POLL_MS = 1;
/** Pending answers and the handover message are sent within this time. */
const FAREWELL_MS = 50;

export type Replication = {
  readonly lsn: number;
  readonly committed: number;
  readonly leased: boolean;
  readonly contactAgeMs: number;
  /** The number of standbys that resumed from their own log, and of those that received the whole state. */
  readonly resumes: number;
  readonly wholes: number;
  readonly peers: readonly { id: number; state: string; acked: number; required: boolean; unsentBytes: number }[];
};

export class Lead {
  readonly #parts: HaParts;
  readonly #epoch: number;
  readonly #peers = new Map<number, Member>();
  #known: Known;
  #changes: Promise<void> = Promise.resolve();
  #timer: NodeJS.Timeout | undefined;
  #isAsking = false;
  #isHandingOver = false;
  /** This master has handed over leadership; its process restarts once its last messages are sent. */
  isOver = false;
  /** The reason why etcd could not be updated; "" without trouble. */
  trouble = "";

  constructor(parts: HaParts, known: Known) {
    this.#parts = parts;
    this.#known = known;
    this.#epoch = known.leadership.epoch;
    this.#timer = setInterval(() => void this.#stayLeased(), TICK_MS);
  }

  get leadership(): Leadership {
    return this.#known.leadership;
  }

  /** Returns the core's state of each standby, with its name. */
  standbys(): { name: string; state: string; inSync: boolean; acked: number; lag: number; member: Member }[] {
    const { lsn, peers } = JSON.parse(this.#parts.native.replication()) as Replication;
    return peers.flatMap(({ id, state, acked }) => {
      const found = this.#peers.get(id);
      if (found === undefined) return [];
      const inSync = this.leadership.inSync.some((each) => each.id === found.id);
      return [{ name: found.name, state, inSync, acked, lag: Math.max(0, lsn - acked), member: found }];
    });
  }

  close(): void {
    clearInterval(this.#timer);
  }

  /** Handles the record as etcd's watch reports it. */
  onRecord(known: Known | undefined): void {
    if (this.#isHandingOver || (known !== undefined && known.revision < this.#known.revision)) return;
    this.#checkLead(known);
  }

  onPeer(id: number, text: string): void {
    const { native, self, clusterID, log, offload, nof, folder, process } = this.#parts;
    const hello = parsed(standbyHello, text);
    const refusal = this.#refusalOf(hello);
    if (refusal !== undefined || hello === undefined) {
      log.warn({ standby: hello?.member.name, reason: refusal }, "a standby was refused");
      native.refusePeer(id, refusal ?? "not a standby's greeting");
      return;
    }
    this.#peers.set(id, hello.member);
    log.info({ standby: hello.member.name, cluster: clusterID }, "a standby joins");
    // The standby counts again once it has everything that is acknowledged.
    void this.#change((now) => without(now, hello.member)).then(() =>
      native.admitPeer(id, JSON.stringify({ member: self, process }), hello.offload === offload && hello.nof === nof && hello.folder === folder),
    );
  }

  #refusalOf(hello: StandbyHello | undefined): string | undefined {
    const { self, clusterID, offload, nof, folder, mayFollow } = this.#parts;
    if (hello === undefined) return "expected a standby's greeting";
    if (this.#isHandingOver) return "the lead is being handed over; try again";
    if (hello.clusterID !== clusterID) return `this is cluster ${clusterID}, not ${hello.clusterID} (setting store.cluster_id)`;
    if (hello.member.id === self.id) return "a standby needs a folder of its own: this one is the leader's";
    if (hello.format < LOG_FORMAT) return `the log's format here is ${LOG_FORMAT}, the standby's ${hello.format}: upgrade the standbys first`;
    if (offload && !hello.offload)
      return "enable_offload is on here, off at the standby, which cannot read what clients' disks hold: start it with enable_offload (setting store.enable_offload)";
    if (nof && !hello.nof)
      return "enable_nof is on here, off at the standby, which cannot read what lies in NOF segments: start it with enable_nof (setting store.enable_nof)";
    if (folder !== "" && hello.folder !== folder)
      return `store.root_fs_dir is ${folder} here and ${hello.folder || "not set"} at the standby: clients of a cluster share one folder, so start it with --root_fs_dir=${folder}`;
    if (!mayFollow(hello.token)) return "expected a key that may do everything in SVC_STORE_TOKEN of the standby (store.access_file)";
    return undefined;
  }

  onCaughtUp(id: number): void {
    const { log } = this.#parts;
    const found = this.#peers.get(id);
    if (found === undefined) return;
    void this.#change((now) => (this.#peers.has(id) ? { ...without(now, found), inSync: [...without(now, found).inSync, found] } : now)).then(() => {
      if (this.#peers.has(id)) log.info({ standby: found.name }, "a standby is in sync");
    });
  }

  onPeerLost(id: number, reason: string): void {
    const { native, log } = this.#parts;
    const found = this.#peers.get(id);
    if (found === undefined) return;
    this.#peers.delete(id);
    if (this.#isHandingOver) return;
    log.warn({ standby: found.name, reason }, "a standby left");
    // A newer stream of the same standby may be in sync already.
    const isBack = () => [...this.#peers.values()].some((each) => each.id === found.id);
    void this.#change((now) => (isBack() ? now : without(now, found))).then(() => native.forgetPeer(id));
  }

  /**
   * Hands leadership over to the named standby; this process then restarts as a standby.
   * @throws STORE_KEY_NOT_FOUND, STORE_CONFLICT
   */
  async handOver(name: string): Promise<Member> {
    const { native, record, log } = this.#parts;
    const [id, target] = [...this.#peers].find(([, each]) => each.name === name || each.id === name) ?? [];
    const names = this.leadership.inSync.map((each) => each.name).join(", ") || "none";
    if (id === undefined || target === undefined) return fail("STORE_KEY_NOT_FOUND", `there is no standby ${name}; in sync: ${names}`);
    if (!this.leadership.inSync.some((each) => each.id === target.id)) fail("STORE_CONFLICT", `standby ${name} is not in sync yet; in sync: ${names}`);
    if (this.#isHandingOver) fail("STORE_CONFLICT", "the lead is already being handed over");
    this.#isHandingOver = true;
    await this.#changes;
    native.retire(true);
    const back = (reason: string): never => {
      this.#isHandingOver = false;
      native.retire(false);
      return fail("STORE_CONFLICT", `the lead stays here: ${reason}`);
    };
    for (const endMs = performance.now() + HAND_OVER_MS; !native.peerHasAll(id); await sleep(POLL_MS))
      if (performance.now() > endMs || !this.#peers.has(id)) back(`standby ${name} did not keep up`);
    const next = { epoch: this.#epoch + 1, leader: target, inSync: [] };
    let changed = await record.change(this.#known, next);
    while (changed.outcome === "unknown") {
      // The written record decides which master leads, so nothing is answered until it is known.
      await sleep(RETRY_MS);
      const known = await record.read().catch(() => undefined);
      if (known?.revision === this.#known.revision) back(changed.reason);
      else if (known !== undefined)
        changed =
          known.leadership.epoch === next.epoch && known.leadership.leader.id === target.id ? { outcome: "written", known } : { outcome: "lost", known };
    }
    if (changed.outcome === "lost") this.#parts.restart("another master took the lead");
    this.isOver = true;
    native.handOver(id, next.epoch);
    log.warn({ to: name, epoch: next.epoch }, "the lead was handed over");
    setTimeout(() => this.#parts.restart(`the lead was handed over to ${name}`), FAREWELL_MS);
    return target;
  }

  /** Renews the lease through etcd while a standby is silent, so that reads continue until the standby answers or leaves the set. */
  async #stayLeased(): Promise<void> {
    const { native, record } = this.#parts;
    const { contactAgeMs } = JSON.parse(native.replication()) as Replication;
    if (this.#isAsking || this.#isHandingOver || contactAgeMs < ASK_ETCD_MS) return;
    this.#isAsking = true;
    const sentMs = performance.now();
    try {
      this.#checkLead(await record.read());
      native.contacted(performance.now() - sentMs);
    } catch {
      // Without etcd and without standbys the core stops answering by its own clock.
    } finally {
      this.#isAsking = false;
    }
  }

  #checkLead(known: Known | undefined): void {
    if (known === undefined) {
      // No other master leads, so the record that etcd lost is written again.
      if (this.#known.revision === LOST) return;
      this.#known = { ...this.#known, revision: LOST };
      void this.#change((now) => now);
      return;
    }
    const { leader, epoch } = known.leadership;
    if (leader.id === this.#parts.self.id && epoch === this.#epoch) this.#known = known;
    else this.#parts.restart(`${leader.name} leads since epoch ${epoch}`);
  }

  /** Changes the record. Changes are serialized, each until etcd has it, since the next one builds on it. */
  #change(make: (now: Leadership) => Leadership): Promise<void> {
    this.#changes = this.#changes
      .then(() => this.#write(make))
      // Leading on the basis of an unreadable record would be a guess; as a standby this master does no harm.
      .catch((error) => this.#parts.restart(`the leadership record cannot be changed: ${asFailure(error).message}`));
    return this.#changes;
  }

  async #write(make: (now: Leadership) => Leadership): Promise<void> {
    const { record, log } = this.#parts;
    for (;;) {
      const next = make(this.#known.leadership);
      if (same(next, this.#known.leadership) && this.#known.revision !== LOST) break;
      const changed = await record.change(this.#known, next);
      if (changed.outcome !== "unknown") {
        this.#checkLead(changed.known);
        if (changed.outcome === "written") break;
        continue;
      }
      if (this.trouble === "") log.error({ reason: changed.reason }, "a change of the set cannot be written to etcd: nothing is acknowledged until it is");
      this.trouble = `a standby left or joined, and etcd cannot be updated: ${changed.reason}`;
      await sleep(RETRY_MS);
      const known = await record.read().catch(() => this.#known);
      this.#checkLead(known);
    }
    if (this.trouble !== "") log.warn("the set was written to etcd: answers continue");
    this.trouble = "";
  }
}

const without = (now: Leadership, gone: Member): Leadership => ({ ...now, inSync: now.inSync.filter((each) => each.id !== gone.id) });
const same = (a: Leadership, b: Leadership): boolean => JSON.stringify(a) === JSON.stringify(b);
