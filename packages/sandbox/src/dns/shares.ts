// Counts work in progress per sandbox, so that no few sandboxes use up the common limit.

export type ShareLimits = {
  /** The maximum per sandbox while few sandboxes are active. */
  readonly perSandbox: number;
  /** The total, divided among the active sandboxes. */
  readonly inAll: number;
  /** The minimum that every sandbox may have, whatever the others do. */
  readonly least: number;
};

/**
 * A sandbox may have `inAll` divided by the number of active sandboxes, within `least` and `perSandbox`, so that latecomers get a share. The
 * total may
 * exceed `inAll`, by `least` per sandbox and by work begun when fewer were active.
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
