// A standby: follows the leader, and takes over if it is in the in-sync set and the leader is gone.
import { setTimeout as sleep } from "node:timers/promises";
import { type LeaderHello, LOG_FORMAT, leaderHello, parsed } from "./hello.ts";
import type { Known } from "./leadership.ts";
import { type HaParts, LEASE_MS, RETRY_MS } from "./parts.ts";
import { hasEnded } from "./process-identity.ts";

//   standby --followed--> catching_up --(in the leader's set)--> standby --stream broken or silent--> candidate --etcd--> leads
//      ^────refused, not reached, not in the set──┘                                                       └─lost──> restarts

/** A kernel closes a process's sockets at most this long before the process is gone. */
const PROOF_MS = 100;

export type StandState = "standby" | "catching_up" | "candidate";

export class Stand {
  readonly #parts: HaParts;
  readonly #onLead: (known: Known, holdMs: number) => void;
  #leader: LeaderHello | undefined;
  #isOver = false;
  #lastReason = "";
  state: StandState = "standby";

  constructor(parts: HaParts, onLead: (known: Known, holdMs: number) => void) {
    this.#parts = parts;
    this.#onLead = onLead;
  }

  /** Follows the leader named by the record, however long that takes. */
  async follow(known: Known): Promise<void> {
    const { native, self, clusterID, offload, nof, folder, token, log } = this.#parts;
    const { leader, epoch } = known.leadership;
    // A proof that the former leader has ended says nothing about this one.
    this.#leader = undefined;
    try {
      const { host, port } = await this.#parts.reach(leader);
      const hello = { clusterID, member: self, format: LOG_FORMAT, offload, nof, folder, ...(token === undefined ? {} : { token }) };
      native.follow(host, port, epoch, JSON.stringify(hello));
    } catch (error) {
      log.warn({ leader: leader.name, reason: (error as Error).message }, "the leader's address cannot be reached");
      await this.#lost((error as Error).message);
    }
  }

  onFollowed(text: string, resumes: boolean): void {
    this.#leader = parsed(leaderHello, text);
    this.state = "catching_up";
    this.#parts.log.info({ leader: this.#leader?.member.name }, resumes ? "resuming from this master's log" : "receiving the leader's state");
  }

  onFollowLost(reason: string): void {
    void this.#lost(reason);
  }

  /** The leader announced the handover, but etcd's record decides. */
  onHandover(): void {
    void this.#take(Promise.resolve(true));
  }

  onRecord(known: Known | undefined): void {
    if (known?.leadership.inSync.some(({ id }) => id === this.#parts.self.id) && this.state === "catching_up") this.state = "standby";
  }

  async #lost(reason: string): Promise<void> {
    const { log, restart } = this.#parts;
    if (this.#isOver) return;
    if (reason === "begins anew") restart("the leader sends its whole state");
    if (reason !== this.#lastReason) log.warn({ reason }, "the stream of the leader ended");
    this.#lastReason = reason;
    if (reason.startsWith("refused: ")) {
      await sleep(RETRY_MS);
      return this.#again();
    }
    await this.#take(this.#leader === undefined ? Promise.resolve(false) : hasEnded(this.#leader.process, PROOF_MS));
  }

  async #again(): Promise<void> {
    const { record, self } = this.#parts;
    const known = await record.read().catch(() => record.known);
    if (known === undefined) {
      // The leader writes the record again; a master without the leader's data must not.
      await sleep(RETRY_MS);
      return this.#again();
    }
    return known.leadership.leader.id === self.id ? this.#take(Promise.resolve(false)) : this.follow(known);
  }

  /** Takes over if this master may; otherwise it follows the leader or restarts. */
  async #take(proof: Promise<boolean>): Promise<void> {
    const { record, self, log } = this.#parts;
    if (this.#isOver || this.state === "candidate") return;
    const before = this.state;
    this.state = "candidate";
    let tried = 0;
    for (;;) {
      const known = await record.read().catch((error: Error) => {
        if (this.#lastReason !== error.message) log.warn({ reason: error.message }, "the leader is lost, and etcd does not answer");
        this.#lastReason = error.message;
      });
      if (known === undefined) {
        await sleep(RETRY_MS);
        continue;
      }
      const { epoch, leader, inSync } = known.leadership;
      if (leader.id === self.id) {
        // The record was written by this master with a lost answer, or by a leader that had stopped answering before it wrote.
        return this.#lead(known, epoch !== tried || (await proof) ? 0 : LEASE_MS);
      }
      if (!inSync.some(({ id }) => id === self.id)) {
        this.state = before === "catching_up" ? "standby" : before;
        await sleep(RETRY_MS);
        return this.follow(known);
      }
      tried = epoch + 1;
      const changed = await record.change(known, { epoch: tried, leader: self, inSync: [] });
      if (changed.outcome === "written") return this.#lead(changed.known, (await proof) ? 0 : LEASE_MS);
    }
  }

  #lead(known: Known, holdMs: number): void {
    this.#isOver = true;
    this.#parts.log.warn({ epoch: known.leadership.epoch, holdMs }, "this master becomes the leader");
    this.#onLead(known, holdMs);
  }
}
