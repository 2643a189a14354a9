// One of several masters: it leads or stands by according to the leadership record in etcd, and reports its role.

import { setTimeout as sleep } from "node:timers/promises";
import { Failure, fail } from "@svc/contract/failures.ts";
import { Lead, type Replication } from "./lead.ts";
import type { Known, Member } from "./leadership.ts";
import { BEGIN_MS, type HaParts, RETRY_MS } from "./parts.ts";
import { Stand } from "./stand.ts";

export type HaState = "starting" | "recovering" | "standby" | "catching_up" | "candidate" | "leader_warmup" | "serving";

export class Ha {
  readonly #parts: HaParts;
  #lead: Lead | undefined;
  #stand: Stand | undefined;
  #state: "starting" | "recovering" | "standing" | "leader_warmup" | "serving" = "starting";
  #watch: { close(): Promise<void> } | undefined;
  #standing: () => void = () => undefined;
  #isClosed = false;

  constructor(parts: HaParts) {
    this.#parts = parts;
  }

  get self(): Member {
    return this.#parts.self;
  }

  /** Resolves once the first role of this master is decided; the role may change at any time. */
  async start(): Promise<void> {
    const { record, self, isEmpty } = this.#parts;
    let waited = false;
    for (;;) {
      const known = await this.#read();
      if (this.#isClosed) return;
      if (known === "none") {
        if (isEmpty && !waited) {
          waited = true;
          await sleep(BEGIN_MS);
          continue;
        }
        const first = await record.change(undefined, { epoch: 1, leader: self, inSync: [] });
        if (first.outcome === "unknown") await sleep(RETRY_MS);
        if (first.outcome !== "written") continue;
        await this.#standBy(true, true);
        this.#takeLead(first.known, 0);
        break;
      }
      const { leader, inSync, epoch } = known.leadership;
      const leads = leader.id === self.id;
      // A member of the in-sync set has everything that was acknowledged; any other master may have only the beginning of the leader's log.
      await this.#standBy(!isEmpty, leads || inSync.some(({ id }) => id === self.id));
      this.#stand = new Stand(this.#parts, (taken, holdMs) => this.#takeLead(taken, holdMs));
      if (!leads) {
        await this.#stand.follow(known);
        break;
      }
      // The process that led before has ended, since this one holds the lock of its home.
      const again = await record.change(known, { epoch: epoch + 1, leader: self, inSync: [] });
      if (again.outcome === "written") this.#takeLead(again.known, 0);
      else this.#stand.onFollowLost("another master wrote the record, or etcd does not answer");
      break;
    }
    this.#watch = record.watch((changed) => {
      this.#lead?.onRecord(changed);
      if (this.#lead === undefined) this.#stand?.onRecord(changed);
      if (changed !== undefined) record.known = changed;
    });
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#lead?.close();
    await this.#watch?.close();
  }

  get isLeader(): boolean {
    return this.#lead !== undefined && !this.#lead.isOver;
  }

  /** The state in Mooncake's terms. */
  get state(): HaState {
    if (this.#lead?.isOver) return "recovering";
    return this.#state === "standing" ? (this.#stand?.state ?? "standby") : this.#state;
  }

  /** The reason why it does not answer although it leads; "" if it answers. */
  get trouble(): string {
    return this.#lead?.trouble ?? "";
  }

  /** The name of the standby in sync that has acknowledged most; undefined without one, or if this master does not lead. */
  get successor(): string | undefined {
    const standbys = this.isLeader ? (this.#lead?.standbys() ?? []) : [];
    return standbys.filter(({ inSync }) => inSync).toSorted((one, other) => one.lag - other.lag)[0]?.name;
  }

  /** @throws SERVER_UNREACHABLE on a standby. */
  handOver(name: string): Promise<Member> {
    const leader = this.#parts.record.known?.leadership.leader;
    return (
      this.#lead?.handOver(name) ??
      fail("SERVER_UNREACHABLE", `this master is a standby; the leader is ${leader?.name ?? "not known"} at ${leader?.http ?? "?"}`)
    );
  }

  /** Describes the masters for people and tools. */
  describe(): object {
    const { record, self, native } = this.#parts;
    const leadership = record.known?.leadership;
    const { lsn, committed, contactAgeMs } = JSON.parse(native.replication()) as Replication;
    return {
      success: true,
      name: self.name,
      role: this.isLeader ? "leader" : "standby",
      state: this.state,
      reason: this.trouble,
      epoch: leadership?.epoch ?? 0,
      leader: leadership?.leader ?? null,
      view_version: Number(record.view),
      in_sync: leadership?.inSync.map(({ name }) => name) ?? [],
      standbys: (this.#lead?.standbys() ?? []).map(({ member, inSync, ...rest }) => ({ ...rest, in_sync: inSync, rpc: member.rpc, http: member.http })),
      records: lsn,
      committed_records: committed,
      contact_age_ms: contactAgeMs,
    };
  }

  gauges(): { isLeader: number; epoch: number; inSync: number; lag: number; resumes: number; wholes: number } {
    const { resumes, wholes } = JSON.parse(this.#parts.native.replication()) as Replication;
    const epoch = this.#parts.record.known?.leadership.epoch ?? 0;
    const standbys = this.#lead?.standbys() ?? [];
    return {
      isLeader: this.isLeader ? 1 : 0,
      epoch,
      inSync: standbys.filter(({ inSync }) => inSync).length,
      lag: Math.max(0, ...standbys.map(({ lag }) => lag)),
      resumes,
      wholes,
    };
  }

  get leaderView(): { present: boolean; leader_address: string | null; view_version: number | null } {
    const { record } = this.#parts;
    const leader = record.known?.leadership.leader;
    return { present: leader !== undefined, leader_address: leader?.rpc ?? null, view_version: leader === undefined ? null : Number(record.view) };
  }

  // The core's events arrive at the methods below.
  onStanding(): void {
    this.#standing();
  }
  onServing(): void {
    this.#state = "serving";
  }
  onPeer(id: number, text: string): void {
    if (this.#lead === undefined || this.#state !== "serving") this.#parts.native.refusePeer(id, "this master does not lead");
    else this.#lead.onPeer(id, text);
  }
  onCaughtUp(id: number): void {
    this.#lead?.onCaughtUp(id);
  }
  onPeerLost(id: number, reason: string): void {
    this.#lead?.onPeerLost(id, reason);
  }
  onFollowed(text: string, resumes: boolean): void {
    this.#stand?.onFollowed(text, resumes);
  }
  onFollowLost(reason: string): void {
    this.#stand?.onFollowLost(reason);
  }
  onHandover(): void {
    this.#stand?.onHandover();
  }

  async #read(): Promise<Known | "none"> {
    const { record, log } = this.#parts;
    let said = "";
    while (!this.#isClosed) {
      try {
        return (await record.read()) ?? "none";
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        if (said !== error.message) log.warn({ reason: error.message }, "etcd does not answer: this master waits to learn who leads");
        said = error.message;
        await sleep(RETRY_MS);
      }
    }
    return "none";
  }

  #standBy(recovers: boolean, isNeeded: boolean): Promise<void> {
    this.#state = "recovering";
    const standing = new Promise<void>((resolve) => {
      this.#standing = resolve;
    });
    this.#parts.native.startStandby(recovers, isNeeded);
    return standing.then(() => {
      this.#state = "standing";
    });
  }

  #takeLead(known: Known, holdMs: number): void {
    this.#state = "leader_warmup";
    this.#lead = new Lead(this.#parts, known);
    this.#parts.native.lead(known.leadership.epoch, holdMs, Number(this.#parts.record.view));
  }
}
