// Caches the locations of objects for the duration of the master's lease, so that repeated reads need no call to the master.
import { Failure } from "@svc/contract/failures.ts";

export type Place = {
  readonly endpoint: string;
  readonly address: bigint;
  readonly sizeBytes: number;
  readonly checksum: bigint;
  /** The lease's end on this process's monotonic clock; until then the bytes at the location are this object's. */
  readonly untilMs: number;
  /** From this time on the master is asked again, so that frequently read objects keep their lease and are not evicted. */
  readonly renewMs: number;
};

/** The share of a lease after which it is renewed. */
const RENEW_AFTER = 0.75;
const MAX_DAMAGED = 10_000;
const DAMAGED_MS = 60_000;

export class Places {
  readonly #most: number;
  readonly #places = new Map<string, Place>();

  /** @param most bounds the cached locations; beyond it the oldest one is dropped. */
  constructor(most: number) {
    this.#most = most;
  }

  /** @param askedMs the time of the call to the master, since the lease cannot have begun earlier. */
  learn(key: string, place: Omit<Place, "untilMs" | "renewMs">, askedMs: number, leaseMs: number): Place {
    const learned: Place = { ...place, untilMs: askedMs + leaseMs, renewMs: askedMs + leaseMs * RENEW_AFTER };
    if (this.#most === 0) return learned;
    this.#places.delete(key);
    if (this.#places.size >= this.#most) this.#places.delete(this.#places.keys().next().value as string);
    this.#places.set(key, learned);
    return learned;
  }

  find(key: string): Place | undefined {
    const place = this.#places.get(key);
    return place !== undefined && performance.now() < place.renewMs ? place : undefined;
  }

  forget(key: string): void {
    this.#places.delete(key);
  }

  /** Forgets all locations on a holder that was not reached. */
  forgetHolder(endpoint: string): void {
    for (const [key, place] of this.#places) if (place.endpoint === endpoint) this.#places.delete(key);
  }

  clear(): void {
    this.#places.clear();
  }
}

/** Holders that were unreachable a moment ago: this client requests memory elsewhere, and reads elsewhere if possible. */
export class Avoided {
  readonly #untilMs = new Map<string, number>();

  add(endpoint: string, forMs: number): void {
    this.#untilMs.set(endpoint, performance.now() + forMs);
  }

  has(endpoint: string): boolean {
    return this.#untilMs.size > 0 && (this.#untilMs.get(endpoint) ?? 0) > performance.now();
  }

  list(): string[] {
    const now = performance.now();
    for (const [endpoint, untilMs] of this.#untilMs) if (untilMs <= now) this.#untilMs.delete(endpoint);
    return [...this.#untilMs.keys()];
  }

  clear(): void {
    this.#untilMs.clear();
  }
}

/** Keys whose only bytes were damaged a moment ago. The master learns of the damage only after the owner has verified it. */
export class Damaged {
  readonly #atMs = new Map<string, number>();

  add(key: string): void {
    this.#atMs.delete(key);
    if (this.#atMs.size >= MAX_DAMAGED) this.#atMs.delete(this.#atMs.keys().next().value as string);
    this.#atMs.set(key, Date.now());
  }

  /** Returns the time at which the damage was found. */
  find(key: string): number | undefined {
    const atMs = this.#atMs.get(key);
    if (atMs !== undefined && Date.now() > atMs + DAMAGED_MS) this.#atMs.delete(key);
    return this.#atMs.get(key);
  }

  forget(key: string): void {
    if (this.#atMs.size > 0) this.#atMs.delete(key);
  }
}

export const tooSmall = (sizeBytes: number, givenBytes: number): Failure =>
  new Failure("INVALID_REQUEST", `the object has ${sizeBytes} bytes, but the memory for it only ${givenBytes}`, { details: { storeCode: -600 } });
