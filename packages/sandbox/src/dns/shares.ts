// Counts what is in progress per sandbox, such that no few of them take what all share.

export type ShareLimits = {
  /** Of one sandbox, while there is room. */
  readonly perSandbox: number;
  /** Divided among the sandboxes that have any in progress. */
  readonly inAll: number;
  /** Every sandbox may have as many, whatever the others do. */
  readonly least: number;
};

/**
 * A sandbox may have `inAll` divided by the number of sandboxes that have any, within `least` and `perSandbox`: who comes late
 * finds room. So the total may pass `inAll`, by `least` per sandbox and what earlier ones began when they were fewer.
 */
export class Shares {
  readonly #limits: ShareLimits;
  readonly #counts = new Map<string, number>();

  constructor(limits: ShareLimits) {
    this.#limits = limits;
  }

  enter(sandbox: string): boolean {
    const { perSandbox, inAll, least } = this.#limits;
    const count = this.#counts.get(sandbox) ?? 0;
    const active = this.#counts.size + (count === 0 ? 1 : 0);
    if (count >= Math.min(perSandbox, Math.max(least, Math.floor(inAll / active)))) return false;
    this.#counts.set(sandbox, count + 1);
    return true;
  }

  leave(sandbox: string): void {
    const count = this.#counts.get(sandbox) ?? 0;
    if (count <= 1) this.#counts.delete(sandbox);
    else this.#counts.set(sandbox, count - 1);
  }
}
