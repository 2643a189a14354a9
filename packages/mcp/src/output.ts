// The output of a command, limited to its beginning and its end, because errors appear at the end.

const HALF_BYTES = 32 * 1024;

export class Output {
  readonly #head: Buffer[] = [];
  readonly #tail: Buffer[] = [];
  #headBytes = 0;
  #tailBytes = 0;
  #leftOut = 0;

  add(data: Buffer): void {
    const free = HALF_BYTES - this.#headBytes;
    if (free > 0) {
      this.#head.push(data.subarray(0, free));
      this.#headBytes += Math.min(free, data.length);
    }
    const rest = data.subarray(Math.max(0, free));
    if (rest.length === 0) return;
    this.#tail.push(rest);
    this.#tailBytes += rest.length;
    while (this.#tailBytes > HALF_BYTES) {
      const first = this.#tail[0] as Buffer;
      const surplus = this.#tailBytes - HALF_BYTES;
      const dropped = Math.min(surplus, first.length);
      if (dropped === first.length) this.#tail.shift();
      else this.#tail[0] = first.subarray(dropped);
      this.#tailBytes -= dropped;
      this.#leftOut += dropped;
    }
  }

  /** Decodes as UTF-8; a character that the cut split becomes U+FFFD. */
  get text(): string {
    const head = Buffer.concat(this.#head).toString("utf8");
    const tail = Buffer.concat(this.#tail);
    if (this.#leftOut > 0) return `${head}\n[… ${this.#leftOut} bytes left out: write large output to a file and read parts of it …]\n${tail.toString("utf8")}`;
    return tail.length === 0 ? head : Buffer.concat([...this.#head, ...this.#tail]).toString("utf8");
  }
}
