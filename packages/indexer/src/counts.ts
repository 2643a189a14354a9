// What a subscription has seen, counted: for metrics, /services and the doctor.
import { outcomes } from "./native.ts";

/** Restarts whose time is kept. */
const MOST_RESTARTS = 10;

export class Counts {
  batches = 0;
  replayedBatches = 0;
  malformedFrames = 0;
  duplicateBatches = 0;
  gaps = 0;
  healedGaps = 0;
  lostGaps = 0;
  restarts = 0;
  /** When the last of them were seen: two publishers on one endpoint look like endless restarts. */
  readonly restartsAtMs: number[] = [];
  disconnects = 0;
  /** Connections that were ended here: for a message too large, for silence, or since what is there does not speak ZMTP. */
  brokenOff = 0;
  brokenOffWhy = "";
  /** By `outcomes`. */
  readonly events = new Float64Array(outcomes.length);

  add(batch: Uint32Array): void {
    for (let i = 0; i < this.events.length; i++) this.events[i] = (this.events[i] as number) + (batch[i] as number);
  }

  restarted(): void {
    this.restarts++;
    this.restartsAtMs.splice(0, this.restartsAtMs.push(Date.now()) - MOST_RESTARTS);
  }

  brokeOff(why: string): void {
    this.brokenOff++;
    this.brokenOffWhy = why;
  }

  /** The event counts that are not zero, by name. */
  named(): Record<string, number> {
    return Object.fromEntries(outcomes.map((name, i) => [name, this.events[i] ?? 0] as const).filter(([, value]) => value > 0));
  }
}
