// Counts what a subscription has seen, for metrics, /services and the doctor.
import type { PublisherState } from "@svc/contract/indexer.ts";
import { type Outcome, outcomes } from "../index/native.ts";
import type { PublisherKind } from "../registrations/register-input.ts";

/** The number of restarts whose time is kept. */
const MAX_RESTARTS_KEPT = 10;

/** Outcomes of events whose blocks the engine has and the index lacks. */
const UNREAD = [
  ...["malformed_event", "unknown_event", "no_hash", "model_differs", "block_size_differs", "token_count_differs", "tokens_missing"],
  ...["parent_missing", "park_dropped", "too_many_streams", "over_budget"],
] as const;

export class Counts {
  batches = 0;
  replayedBatches = 0;
  malformedFrames = 0;
  duplicateBatches = 0;
  gaps = 0;
  healedGaps = 0;
  lostGaps = 0;
  restarts = 0;
  /** The times of the last restarts: two publishers on one endpoint look like endless restarts. */
  readonly restartsAtMs: number[] = [];
  disconnects = 0;
  /** Messages whose topic names a publisher that is not registered at this address, and the last such topic. */
  strays = 0;
  strayTopic = "";
  /** Connections that the indexer ended: the message was too large, the peer was silent, or it does not speak ZMTP. */
  brokenOff = 0;
  brokenOffWhy = "";
  /** Why the last dial failed; "" once a connection is open. */
  unreachableWhy = "";
  /** Since when no publisher is connected; undefined while one is. */
  awaySinceMs: number | undefined = Date.now();
  /** True if the publisher was not connected for so long that its blocks no longer count. */
  isDead = false;
  /** Event counts in the order of `outcomes`. */
  readonly events = new Float64Array(outcomes.length);
  readonly #unread: readonly number[];

  constructor(kind: PublisherKind = "engine") {
    // A store's keys need not be hashes, so a key without one is not a loss.
    this.#unread = UNREAD.filter((name) => kind === "engine" || name !== "no_hash").map((name) => outcomes.indexOf(name as Outcome));
  }

  /** Adds a batch's counts, and returns whether everything in the batch is indexed. */
  add(batch: Uint32Array): boolean {
    for (let i = 0; i < this.events.length; i++) this.events[i] = (this.events[i] as number) + (batch[i] as number);
    return this.#unread.every((outcome) => batch[outcome] === 0);
  }

  stateOf(isConnected: boolean): PublisherState {
    return isConnected ? "live" : this.isDead ? "dead" : "disconnected";
  }

  restarted(): void {
    this.restarts++;
    this.restartsAtMs.splice(0, this.restartsAtMs.push(Date.now()) - MAX_RESTARTS_KEPT);
  }

  brokeOff(why: string): void {
    this.brokenOff++;
    this.brokenOffWhy = why;
  }

  /** Returns the event counts that are not zero, by name. */
  named(): Record<string, number> {
    return Object.fromEntries(outcomes.map((name, i) => [name, this.events[i] ?? 0] as const).filter(([, value]) => value > 0));
  }
}
