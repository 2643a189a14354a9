// Traffic for real engines: conversations that grow, with tools, LoRA adapters, salts and token ids, and what each answer said of its cache.
import { setTimeout as delay } from "node:timers/promises";
import { UNTIL_BOUND_MS } from "../src/until.ts";

export type Asked = { readonly path: string; readonly body: Record<string, unknown> };
export type Said = {
  readonly status: number;
  readonly engine: string;
  readonly text: string;
  /** Undefined if the router did not know the prompt's tokens. */
  readonly expected: number | undefined;
  readonly cached: number | undefined;
  readonly body: string;
};

type Message = { role: string; content: string };
type Talk = {
  readonly model: string;
  readonly salt: string | undefined;
  readonly tools: object[] | undefined;
  readonly kind: Kind;
  messages: Message[];
  tokens: number[];
};
type Kind = "chat" | "tokens" | "text";

/** A small generator with a seed, so that a run can be repeated. */
export function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const words = "the block a prefix token answers of cached engine every while sends reads under its prompt long short again".split(" ");
const tool = (name: string) => ({
  type: "function",
  function: { name, description: `Runs ${name} in the sandbox.`, parameters: { type: "object", properties: { path: { type: "string" } } } },
});
const MOST_CHARS = 1_100;
/** Answers are short, since the tests only compare how much of each prompt was cached. */
const MAX_TOKENS = 4;

export class Traffic {
  readonly #random: () => number;
  readonly #models: readonly string[];
  readonly #most: number;
  readonly #talks: Talk[] = [];

  /** `most` is the number of concurrent conversations. */
  constructor({ seed, models, most }: { seed: number; models: readonly string[]; most: number }) {
    this.#random = randomFrom(seed);
    this.#models = models;
    this.#most = most;
  }

  /** The next request of some conversation; call `answered` with its text before the next one of the same conversation. */
  next(): { asked: Asked; answered: (text: string) => void } {
    let talk = this.#pick(this.#talks);
    if (talk === undefined || this.#random() < 0.15 || sizeOf(talk) > MOST_CHARS) {
      talk = this.#begin();
      if (this.#talks.length >= this.#most) this.#talks.splice(Math.floor(this.#random() * this.#talks.length), 1);
      this.#talks.push(talk);
    }
    const spoken = talk;
    const text = this.#words(5 + Math.floor(this.#random() * 40));
    spoken.messages.push({ role: "user", content: text });
    if (spoken.kind !== "chat") spoken.tokens.push(...Buffer.from(text).map((byte) => byte % 256));
    return {
      asked: this.#ask(spoken),
      answered(answer) {
        spoken.messages.push({ role: "assistant", content: answer });
      },
    };
  }

  #begin(): Talk {
    const kind = this.#pick(["chat", "chat", "chat", "chat", "tokens", "text"] as const) ?? "chat";
    return {
      kind,
      model: this.#pick(this.#models) ?? "tiny",
      salt: this.#random() < 0.15 ? `salt-${Math.floor(this.#random() * 3)}` : undefined,
      tools: kind === "chat" && this.#random() < 0.3 ? [tool("read_file"), tool("run")] : undefined,
      // A few beginnings that conversations share.
      messages: [{ role: "system", content: `You are agent ${Math.floor(this.#random() * 3)}. ${words.join(" ")}.` }],
      tokens: Array.from(Buffer.from(words.join(" "))),
    };
  }

  #ask({ kind, model, salt, tools, messages, tokens }: Talk): Asked {
    const common = { model, max_tokens: MAX_TOKENS, temperature: 0, ignore_eos: true, ...(salt === undefined ? {} : { cache_salt: salt }) };
    if (kind === "tokens") return { path: "/v1/completions", body: { ...common, prompt: [...tokens] } };
    if (kind === "text") return { path: "/v1/completions", body: { ...common, prompt: messages.map(({ content }) => content).join("\n") } };
    return { path: "/v1/chat/completions", body: { ...common, messages: [...messages], ...(tools === undefined ? {} : { tools, tool_choice: "auto" }) } };
  }

  #words(count: number): string {
    return Array.from({ length: count }, () => this.#pick(words)).join(" ");
  }

  #pick<T>(list: readonly T[]): T | undefined {
    return list[Math.floor(this.#random() * list.length)];
  }
}

const sizeOf = ({ messages, tokens }: Talk) =>
  Math.max(
    tokens.length,
    messages.reduce((sum, { content }) => sum + content.length + 30, 0),
  );

export async function say(url: string, { path, body }: Asked, headers: Readonly<Record<string, string>> = {}): Promise<Said> {
  const response = await fetch(url + path, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(UNTIL_BOUND_MS),
  });
  const text = await response.text();
  const json = (text.startsWith("{") ? JSON.parse(text) : {}) as {
    choices?: { text?: string; message?: { content: string | null } }[];
    usage?: { prompt_tokens_details?: { cached_tokens?: number } | null };
  };
  const expected = response.headers.get("x-svc-expected-cached-tokens");
  const [choice] = json.choices ?? [];
  return {
    status: response.status,
    engine: response.headers.get("x-svc-instance") ?? "",
    text: choice?.text ?? choice?.message?.content ?? "",
    expected: expected === null ? undefined : Number(expected),
    cached: json.usage?.prompt_tokens_details?.cached_tokens ?? (json.usage === undefined ? undefined : 0),
    body: text,
  };
}

export type Row = {
  instance_id: string;
  freshness: { last_sequence: number | null; complete: boolean; gap: boolean; connected: boolean; uncertain: boolean };
  batches: Record<string, number>;
  events: Record<string, number>;
  doctor: string[];
};

export async function rowsOf(indexer: string): Promise<Row[]> {
  return ((await (await fetch(`${indexer}/services`)).json()) as { services: Row[] }).services;
}

/** An engine publishes a moment after its answer: waits until no further batch comes. */
export async function settled(indexer: string): Promise<void> {
  const look = async () => JSON.stringify((await rowsOf(indexer)).map(({ freshness }) => freshness.last_sequence));
  let last = await look();
  for (let same = 0; same < 4; ) {
    await delay(15);
    const now = await look();
    same = now === last ? same + 1 : 0;
    last = now;
  }
}
