// Finds an answer's usage and its id in its first and last bytes, without parsing what lies between.

const HEAD_BYTES = 4 * 1024;
const TAIL_BYTES = 8 * 1024;

export type Usage = { readonly cachedTokens: number | undefined; readonly promptTokens: number | undefined };

export class AnswerScan {
  head = "";
  /** It may become twice as long as what it is for, so that it is rarely cut. */
  #tail = "";
  /** True if the last bytes end an event of a stream: something may be appended then. */
  endsEvent = true;

  /** `chunk`: bytes, or text with one character per byte. */
  take(chunk: Uint8Array | string): void {
    const text = typeof chunk === "string" ? chunk : Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength).toString("latin1");
    if (this.head.length < HEAD_BYTES) this.head += ownText(text, 0, HEAD_BYTES - this.head.length);
    this.#tail = text.length > TAIL_BYTES ? ownText(text, text.length - TAIL_BYTES, text.length) : this.#tail + text;
    if (this.#tail.length > 2 * TAIL_BYTES) this.#tail = ownText(this.#tail, this.#tail.length - TAIL_BYTES, this.#tail.length);
    this.endsEvent = text.endsWith("\n\n") || text.endsWith("\r\n\r\n");
  }

  get tail(): string {
    return this.#tail;
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

/** A slice of a long text would keep all of it alive. */
const ownText = (text: string, start: number, end: number): string =>
  start === 0 && text.length <= end ? text : Buffer.from(text.slice(start, end), "latin1").toString("latin1");
