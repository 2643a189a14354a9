// Reads request bodies whole, each within a bound and all together within another.
import type { IncomingMessage } from "node:http";
import { Refusal } from "./refusals.ts";

const EMPTY = Buffer.alloc(0);

/** A request's body, which counts towards the limit of all bodies until `release`. A stream may go on long after its body is no longer needed. */
export class HeldBody {
  bytes: Buffer;
  readonly #onRelease: () => void;

  constructor(bytes: Buffer, onRelease: () => void) {
    this.bytes = bytes;
    this.#onRelease = onRelease;
  }

  release(): void {
    this.bytes = EMPTY;
    this.#onRelease();
  }
}

export class Bodies {
  readonly #maxBytes: number;
  readonly #maxHeldBytes: number;
  #heldBytes = 0;

  constructor({ maxBytes, maxHeldBytes }: { maxBytes: number; maxHeldBytes: number }) {
    this.#maxBytes = maxBytes;
    this.#maxHeldBytes = maxHeldBytes;
  }

  get heldBytes(): number {
    return this.#heldBytes;
  }

  /** @throws Refusal where it is too large, or all bodies together are */
  async read(request: IncomingMessage): Promise<HeldBody> {
    // A client that is still sending reads no answer, so a refused body's rest is read and dropped for a moment.
    try {
      const declared = Number(request.headers["content-length"] ?? 0);
      if (declared > this.#maxBytes) throw this.#tooLarge(declared);
      return await this.collect(request as AsyncIterable<Buffer>);
    } catch (error) {
      request.resume();
      throw error;
    }
  }

  /** @throws Refusal as `read` does */
  async collect(source: AsyncIterable<Buffer>): Promise<HeldBody> {
    const chunks: Buffer[] = [];
    let bytes = 0;
    const release = () => {
      this.#heldBytes -= bytes;
      bytes = 0;
    };
    try {
      for await (const chunk of source) {
        if (bytes + chunk.length > this.#maxBytes) throw this.#tooLarge(bytes + chunk.length);
        if (this.#heldBytes + chunk.length > this.#maxHeldBytes)
          throw new Refusal("router_full", `the bodies of all requests together have more than ${this.#maxHeldBytes} bytes (router.max_held_bytes)`, 1);
        bytes += chunk.length;
        this.#heldBytes += chunk.length;
        chunks.push(chunk);
      }
    } catch (error) {
      release();
      throw error;
    }
    return new HeldBody(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks), release);
  }

  #tooLarge(bytes: number): Refusal {
    return new Refusal("body_too_large", `the body has at least ${bytes} bytes; the maximum is ${this.#maxBytes} (router.max_body_bytes)`);
  }
}
