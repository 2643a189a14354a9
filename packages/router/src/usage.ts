// Finds an answer's usage and its id in its first and last bytes, without parsing what lies between.

const HEAD_BYTES = 4 * 1024;
const TAIL_BYTES = 8 * 1024;
const [LF, CR] = [10, 13];

export type Usage = { readonly cachedTokens: number | undefined; readonly promptTokens: number | undefined };

export class AnswerScan {
  readonly #head: Buffer[] = [];
  #headBytes = 0;
  #tail: Buffer[] = [];
  #tailBytes = 0;
  /** True if the last bytes end an event of a stream: something may be appended then. */
  endsEvent = true;

  take(chunk: Buffer): void {
    if (this.#headBytes < HEAD_BYTES) {
      this.#head.push(chunk.subarray(0, HEAD_BYTES - this.#headBytes));
      this.#headBytes += chunk.length;
    }
    this.#tail.push(chunk);
    this.#tailBytes += chunk.length;
    while (this.#tail.length > 1 && this.#tailBytes - (this.#tail[0] as Buffer).length >= TAIL_BYTES) this.#tailBytes -= (this.#tail.shift() as Buffer).length;
    if (this.#tail.length === 1 && chunk.length > TAIL_BYTES) {
      this.#tail = [Buffer.from(chunk.subarray(-TAIL_BYTES))];
      this.#tailBytes = TAIL_BYTES;
    }
    const last = chunk.length - 1;
    this.endsEvent = chunk[last] === LF && (chunk[last - 1] === LF || (chunk[last - 1] === CR && chunk[last - 2] === LF && chunk[last - 3] === CR));
  }

  get head(): string {
    return Buffer.concat(this.#head).toString("latin1");
  }

  get tail(): string {
    return Buffer.concat(this.#tail).toString("latin1");
  }

  /** OpenAI's answers have their usage at the end, Anthropic's streams the prompt's at the beginning. */
  usage(): Usage {
    const { tail, head } = this;
    const openai = lastNumber(tail, /"(?:prompt|input)_tokens_details"\s*:\s*\{[^{}]*?"cached_tokens"\s*:\s*(\d+)/g);
    const anthropic = lastNumber(tail, /"cache_read_input_tokens"\s*:\s*(\d+)/g) ?? lastNumber(head, /"cache_read_input_tokens"\s*:\s*(\d+)/g);
    return { cachedTokens: openai ?? anthropic, promptTokens: lastNumber(tail, /"prompt_tokens"\s*:\s*(\d+)/g) };
  }

  /** The id of a response that the engine may keep. */
  responseID(): string | undefined {
    return /"id"\s*:\s*"(resp_[A-Za-z0-9_-]{1,200})"/.exec(this.head)?.[1];
  }
}

function lastNumber(text: string, pattern: RegExp): number | undefined {
  const found = [...text.matchAll(pattern)].at(-1)?.[1];
  return found === undefined ? undefined : Number(found);
}
