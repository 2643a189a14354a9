// Registered staging memory for bytes on their way between holders, lent in areas of one size and reused while still in the processor's cache.
import { alloc } from "@svc/transfer/memory.ts";
import type { LocalMemory } from "./memory.ts";

export type Area = Uint8Array<ArrayBuffer>;

export class Staging {
  readonly #memory: LocalMemory;
  readonly #areaBytes: number;
  readonly #most: number;
  readonly #free: Area[] = [];
  readonly #waiting: ((area: Area) => void)[] = [];
  #made = 0;

  constructor(memory: LocalMemory, { areaBytes, most }: { readonly areaBytes: number; readonly most: number }) {
    this.#memory = memory;
    this.#areaBytes = areaBytes;
    this.#most = most;
  }

  /** Waits while all areas are lent. @throws TRANSFER_FAILED when the host has no memory left. */
  async take(): Promise<Area> {
    // The area that was returned last is most likely still cached.
    const free = this.#free.pop();
    if (free !== undefined) return free;
    if (this.#made >= this.#most) return new Promise((resolve) => this.#waiting.push(resolve));
    this.#made++;
    try {
      const area = alloc(this.#areaBytes);
      await this.#memory.register(area);
      return area;
    } catch (error) {
      this.#made--;
      throw error;
    }
  }

  give(area: Area): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#free.push(area);
    else next(area);
  }
}
