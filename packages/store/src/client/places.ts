// Where objects lie, for as long as the lease holds that the master gave: such a read asks the master nothing.
import { Failure } from "@svc/contract/failures.ts";

export type Place = {
  readonly endpoint: string;
  readonly address: bigint;
  readonly sizeBytes: number;
  readonly checksum: bigint;
  /** On this process's monotonic clock: until then the bytes there are this object's. */
  readonly untilMs: number;
  /** From then on the master is asked again, so that what is read often keeps its lease and is not evicted. */
  readonly renewMs: number;
};

/** The part of a lease after which it is renewed. */
const RENEW_AFTER = 0.75;
const MAX_DAMAGED = 10_000;
const DAMAGED_MS = 60_000;

export class Places {
  readonly #most: number;
  readonly #places = new Map<string, Place>();

  /** @param most places remembered; past that the one learned first goes. */
  constructor(most: number) {
    this.#most = most;
  }

  /** @param askedMs when the master was asked: its lease cannot have begun before. */
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

  /** Of a holder that was not reached. */
  forgetHolder(endpoint: string): void {
    for (const [key, place] of this.#places) if (place.endpoint === endpoint) this.#places.delete(key);
  }

  clear(): void {
    this.#places.clear();
  }
}

/** Holders that could not be reached a moment ago: this client asks for memory elsewhere, and reads elsewhere where it can. */
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

/** Keys whose only bytes were wrong a moment ago: the master learns it from the owner, after that has looked. */
export class Damaged {
  readonly #atMs = new Map<string, number>();

  add(key: string): void {
    this.#atMs.delete(key);
    if (this.#atMs.size >= MAX_DAMAGED) this.#atMs.delete(this.#atMs.keys().next().value as string);
    this.#atMs.set(key, Date.now());
  }

  /** When that was. */
  find(key: string): number | undefined {
    const atMs = this.#atMs.get(key);
    if (atMs !== undefined && Date.now() > atMs + DAMAGED_MS) this.#atMs.delete(key);
    return this.#atMs.get(key);
  }

  forget(key: string): void {
    if (this.#atMs.size > 0) this.#atMs.delete(key);
  }
}

export const tooSmall = (sizeBytes: number, roomBytes: number): Failure =>
  new Failure("INVALID_REQUEST", `the object has ${sizeBytes} bytes, but the memory for it only ${roomBytes}`, { details: { storeCode: -600 } });
