// The freshness of each publisher as a table of numbers, so that the core writes answers without JavaScript values.
import { freshnessSources } from "../index/native.ts";
import type { Subscription } from "../stream/subscription.ts";

/** The fields of a row, in the order of `FreshnessField` in native/src/query.h. */
const FIELDS = 7;

export class FreshnessTable {
  readonly #subscriptions: ReadonlyMap<string, Subscription>;
  #rows = new Float64Array(0);

  constructor(subscriptions: ReadonlyMap<string, Subscription>) {
    this.#subscriptions = subscriptions;
  }

  /** Returns the present freshness by subscription number; NaN means unknown. The table is valid until the next call. */
  now(): Float64Array {
    let last = -1;
    for (const { generations } of this.#subscriptions.values()) last = Math.max(last, ...generations.ids);
    if (this.#rows.length < (last + 1) * FIELDS) this.#rows = new Float64Array(2 * (last + 1) * FIELDS);
    const rows = this.#rows.fill(Number.NaN);
    const nowMs = Date.now();
    for (const subscription of this.#subscriptions.values()) {
      const { last_sequence, lag_ms, age_ms, gap, complete, source, connected } = subscription.heard(nowMs);
      const [id = 0, former] = subscription.generations.ids;
      const row = id * FIELDS;
      rows[row] = last_sequence ?? Number.NaN;
      rows[row + 1] = lag_ms ?? Number.NaN;
      rows[row + 2] = age_ms ?? Number.NaN;
      rows[row + 3] = gap ? 1 : 0;
      rows[row + 4] = complete ? 1 : 0;
      rows[row + 5] = freshnessSources.indexOf(source);
      rows[row + 6] = connected ? 1 : 0;
      if (former !== undefined) rows.copyWithin(former * FIELDS, row, row + FIELDS);
    }
    return rows;
  }
}
