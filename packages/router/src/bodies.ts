// The memory of request bodies: each within a bound, and all together within another.
import { Refusal } from "./refusals.ts";

const EMPTY = Buffer.alloc(0);

/** A request's body, which counts towards the limit of all bodies until `release`. A stream may go on long after its body is no longer needed. */
export class HeldBody {
  bytes: Buffer;
  readonly #onRelease: (() => void) | undefined;
  readonly #bodies: Bodies | undefined;
  #held: number;

  /** `held`: the bytes that were held for it at `bodies`. */
  constructor(bytes: Buffer, bodies: Bodies | undefined, held: number, onRelease?: () => void) {
    this.bytes = bytes;
    this.#bodies = bodies;
    this.#held = held;
    this.#onRelease = onRelease;
  }

  release(): void {
    this.bytes = EMPTY;
    this.#bodies?.release(this.#held);
    this.#held = 0;
    this.#onRelease?.();
  }
}

export class Bodies {
  readonly maxBytes: number;
  readonly #maxHeldBytes: number;
  #heldBytes = 0;

  constructor({ maxBytes, maxHeldBytes }: { maxBytes: number; maxHeldBytes: number }) {
    this.maxBytes = maxBytes;
    this.#maxHeldBytes = maxHeldBytes;
  }

  get heldBytes(): number {
    return this.#heldBytes;
  }

  /** Counts bytes that have come. @throws Refusal where all bodies together are too large */
  hold(bytes: number): void {
    if (this.#heldBytes + bytes > this.#maxHeldBytes)
      throw new Refusal("router_full", `the bodies of all requests together have more than ${this.#maxHeldBytes} bytes (router.max_held_bytes)`, 1);
    this.#heldBytes += bytes;
  }

  release(bytes: number): void {
    this.#heldBytes -= bytes;
  }

  /** @throws Refusal where it is too large, or all bodies together are */
  async collect(source: AsyncIterable<Buffer>): Promise<HeldBody> {
    const chunks: Buffer[] = [];
    let bytes = 0;
    try {
      for await (const chunk of source) {
        if (bytes + chunk.length > this.maxBytes) throw this.tooLarge(bytes + chunk.length);
        this.hold(chunk.length);
        bytes += chunk.length;
        chunks.push(chunk);
      }
    } catch (error) {
      this.release(bytes);
      throw error;
    }
    return new HeldBody(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks), this, bytes);
  }

  tooLarge(bytes: number): Refusal {
    return new Refusal("body_too_large", `the body has at least ${bytes} bytes; the maximum is ${this.maxBytes} (router.max_body_bytes)`);
  }
}
