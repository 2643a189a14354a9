// The last batch of a publisher that was taken in: its number, its source, and its lag.
import type { Freshness } from "@svc/contract/indexer.ts";

export class LastTaken {
  sequence: number | null = null;
  source: Freshness["source"] = "none";
  atMs: number | null = null;
  lagMs: number | null = null;

  /** Restores what a snapshot has; the age counts from when the batch was taken in. */
  resume(next: number, atMs: number | null, lagMs: number | null): void {
    this.source = "snapshot";
    this.sequence = next > 0 ? next - 1 : null;
    this.atMs = atMs;
    this.lagMs = lagMs;
  }

  note(sequence: number, source: Freshness["source"]): void {
    this.sequence = sequence;
    this.source = source;
    this.atMs = Date.now();
  }

  /** Computes the lag from the publisher's time stamp, in milliseconds since the Unix epoch; 0 if the publisher gives none. */
  sent(atMs: number): void {
    this.lagMs = atMs > 0 && this.atMs !== null ? Math.max(0, Math.round(this.atMs - atMs)) : null;
  }

  freshness(nowMs: number): Pick<Freshness, "last_sequence" | "lag_ms" | "age_ms" | "source"> {
    return {
      last_sequence: this.sequence,
      lag_ms: this.lagMs,
      age_ms: this.atMs === null ? null : Math.max(0, nowMs - this.atMs),
      source: this.source,
    };
  }
}
