// Two builds measured in interleaved pairs: each figure's ratio in every pair, and the interval that contains its median.
import { median, type Row, report } from "./report.ts";

/** A change may not cost a figure more than this: the whole interval must lie above it. */
const LOSS = 0.05;
const CONFIDENCE = 0.95;
/** With fewer, no interval of order statistics reaches the confidence. */
export const MIN_PAIRS = 6;

export type Side = "old" | "new";
export type Better = "higher" | "lower";
type Figure = { readonly unit: string; readonly better: Better; readonly old: number[]; readonly new: number[] };

/** Orders the two sides of a pair so that neither is always the first. */
export const orderOf = (pair: number): readonly [Side, Side] => (pair % 2 === 0 ? ["old", "new"] : ["new", "old"]);

export class Pairs {
  readonly #figures = new Map<string, Figure>();

  add(what: string, unit: string, better: Better, side: Side, value: number): void {
    let figure = this.#figures.get(what);
    if (figure === undefined) this.#figures.set(what, (figure = { unit, better, old: [], new: [] }));
    figure[side].push(value);
  }

  /** Prints every figure's ratio, above 1 where the new build is better, and writes the result; returns 1 if a figure lost too much, else 0. */
  report(name: string, against: string): number {
    const rows: Row[] = [];
    const raw: Record<string, unknown> = { against };
    let lost = 0;
    for (const [what, figure] of this.#figures) {
      // One of the builds does not know this figure.
      if (figure.old.length !== figure.new.length) continue;
      const ratios = figure.new.map((value, at) => gainOf(figure.old[at] ?? Number.NaN, value, figure.better));
      const interval = medianInterval(ratios);
      const verdict = verdictOf(interval);
      if (verdict === "loss") lost = 1;
      const [low, high] = interval.map((bound) => bound.toFixed(3));
      const middles = `${amount(median(figure.old))} -> ${amount(median(figure.new))} ${figure.unit}`;
      rows.push({ what, value: median(ratios), unit: "x", samples: ratios.length, note: `${low} to ${high}  ${sentences[verdict].padEnd(20)} ${middles}` });
      raw[what] = { ...figure, ratios, interval };
    }
    const percent = `${CONFIDENCE * 100} %`;
    process.stdout.write(`Ratios to ${against}, above 1 where the working tree is better; the interval contains the median of all pairs with ${percent}.\n`);
    report(`${name}-pairs`, rows, raw);
    return lost;
  }
}

function gainOf(old: number, now: number, better: Better): number {
  return better === "higher" ? now / old : old / now;
}

const sentences = { none: "no loss above 5 %", loss: "LOSS ABOVE 5 %", open: "undecided" } as const;

export function verdictOf([low, high]: readonly [number, number]): keyof typeof sentences {
  if (low > 1 - LOSS) return "none";
  return high < 1 - LOSS ? "loss" : "open";
}

/**
 * Returns the narrowest pair of order statistics that contains the median of what was sampled with the confidence above. This makes no
 * assumption about the distribution, so a few pairs that the machine disturbed do not widen it.
 */
export function medianInterval(values: readonly number[]): readonly [number, number] {
  const sorted = values.toSorted((a, b) => a - b);
  const count = sorted.length;
  let outside = 0;
  let rank = 0;
  // `outside`: the chance that at most `rank` of the values lie on one side of the median.
  for (let chance = 0.5 ** count; rank < count; rank++) {
    outside += chance;
    if (2 * outside > 1 - CONFIDENCE) break;
    chance *= (count - rank) / (rank + 1);
  }
  return rank === 0 ? [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY] : [sorted[rank - 1] as number, sorted[count - rank] as number];
}

const amount = (value: number) => (value >= 1000 ? value.toFixed(0) : value.toPrecision(4));
