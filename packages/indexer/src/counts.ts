// What a subscription has seen, counted: for metrics, /services and the doctor.
import { outcomes } from "./native.ts";

export class Counts {
  batches = 0;
  replayedBatches = 0;
  malformedFrames = 0;
  duplicateBatches = 0;
  gaps = 0;
  healedGaps = 0;
  lostGaps = 0;
  restarts = 0;
  disconnects = 0;
  /** Connections that ended although the publisher went on: so does one that brings a message too large. */
  brokenOff = 0;
  /** By `outcomes`. */
  readonly events = new Float64Array(outcomes.length);

  add(batch: Uint32Array): void {
    for (let i = 0; i < this.events.length; i++) this.events[i] = (this.events[i] as number) + (batch[i] as number);
  }

  /** The event counts that are not zero, by name. */
  named(): Record<string, number> {
    return Object.fromEntries(outcomes.map((name, i) => [name, this.events[i] ?? 0] as const).filter(([, value]) => value > 0));
  }
}
