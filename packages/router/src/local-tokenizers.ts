// Tokenizers in the router itself, from folders that the user names, for models whose engines were seen to make the same tokens.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Template } from "@huggingface/jinja";
import { Tokenizer } from "@huggingface/tokenizers";
import { fail } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Body, Prompt } from "./prompt.ts";
import { type Feature, samples } from "./token-samples.ts";

/** Longer prompts go to their engine: tokenizing holds everything else up meanwhile. */
const MAX_CHARS = 256 * 1024;
/** Members of a request that change its rendering in ways of the engine's own. */
const engineOnly = [
  "chat_template",
  "documents",
  "continue_final_message",
  "reasoning_effort",
  "response_format",
  "mm_processor_kwargs",
  "truncate_prompt_tokens",
];

type Message = { readonly content?: unknown; readonly tool_calls?: unknown; readonly [member: string]: unknown };
/** `unchecked`: no engine has answered yet, so that it is not used. */
type State = "unchecked" | "agrees" | "differs";
type Local = {
  readonly folder: string;
  readonly tokenizer: Tokenizer;
  readonly template: Template | undefined;
  readonly special: Body;
  state: State;
  /** Members that this template renders in another way than the engine, which makes the tokens of such prompts itself. */
  readonly leaves: Set<Feature>;
  /** True if calls have their members in the order of OpenAI's types, in which vLLM gives them to templates, and not in the request's. */
  isTyped: boolean;
};

export class LocalTokenizers {
  readonly #models = new Map<string, Local>();
  readonly #log: Log;

  /** `given`: MODEL=FOLDER each. @throws SETTING_INVALID for one that cannot be read. */
  constructor(given: readonly string[], log: Log) {
    this.#log = log;
    for (const text of given) {
      const [, model = "", folder = ""] =
        /^([^=]+)=(.+)$/s.exec(text) ?? fail("SETTING_INVALID", `--tokenizer: expected MODEL=FOLDER, got ${JSON.stringify(text)}`);
      this.#models.set(model, open(model, folder));
    }
  }

  get models(): Iterable<string> {
    return this.#models.keys();
  }

  /** True if an engine has to confirm the model's tokenizer before it is used. */
  isUnchecked(model: string): boolean {
    return this.#models.get(model)?.state === "unchecked";
  }

  /** Undefined where only the engine can tell. `model`: for an adapter, its base. */
  tokensOf(prompt: Prompt, model: string): Uint32Array | undefined {
    const local = this.#models.get(model);
    if (local?.state !== "agrees" || featuresOf(prompt).some((feature) => local.leaves.has(feature))) return undefined;
    return render(local, prompt);
  }

  /**
   * Compares it with an engine, whose tokens `ask` returns: undefined where the engine cannot tell. Returns the difference, after which the
   * model's tokenizer is not used.
   */
  async check(model: string, engine: string, ask: (prompt: Prompt, path: string) => Promise<Uint32Array | undefined>): Promise<string | undefined> {
    const local = this.#models.get(model);
    if (local === undefined || local.state === "differs") return undefined;
    let compared = 0;
    for (const { prompt, path } of samples(model)) {
      const theirs = await ask(prompt, path);
      if (theirs === undefined) continue;
      let ours = render(local, prompt);
      if (ours !== undefined && !areEqual(ours, theirs) && local.state === "unchecked") {
        local.isTyped = !local.isTyped;
        ours = render(local, prompt);
      }
      if (ours === undefined) continue;
      compared++;
      if (areEqual(ours, theirs)) continue;
      const features = featuresOf(prompt);
      const feature = features.at(-1);
      if (feature !== undefined) {
        if (!features.some((one) => local.leaves.has(one)))
          this.#log.warn({ model, engine, feature }, "the engine renders these in another way: it makes the tokens of such prompts");
        local.leaves.add(feature);
        continue;
      }
      local.state = "differs";
      this.#log.warn({ model, engine, folder: local.folder }, "the tokenizer makes other tokens than the engine, and is not used");
      const at = ours.findIndex((token, place) => token !== theirs[place]);
      return `the tokenizer in ${local.folder} does not agree with the engine ${engine} for ${model}: ${JSON.stringify(prompt.body["messages"] ?? prompt.body["prompt"]).slice(0, 200)} has ${ours.length} tokens here and ${theirs.length} there, and token ${at < 0 ? ours.length : at} is another one`;
    }
    if (compared === 0 || local.state === "agrees") return undefined;
    local.state = "agrees";
    this.#log.info({ model, engine, compared }, "the tokenizer of the model agrees with the engine");
    return undefined;
  }
}

function open(model: string, folder: string): Local {
  const read = (name: string): Record<string, unknown> => {
    try {
      return JSON.parse(readFileSync(join(folder, name), "utf8")) as Record<string, unknown>;
    } catch (error) {
      return fail("SETTING_INVALID", `--tokenizer ${model}=${folder}: ${name} cannot be read: ${(error as Error).message}`, { cause: error });
    }
  };
  const config = read("tokenizer_config.json");
  const json = read("tokenizer.json");
  try {
    const file = join(folder, "chat_template.jinja");
    const named = Array.isArray(config["chat_template"])
      ? (config["chat_template"] as { name?: unknown; template?: unknown }[]).find(({ name }) => name === "default")?.template
      : config["chat_template"];
    const text = existsSync(file) ? readFileSync(file, "utf8") : named;
    const template = typeof text === "string" ? new Template(text) : undefined;
    const special = Object.fromEntries(["bos_token", "eos_token", "pad_token", "unk_token"].map((name) => [name, textOf(config[name])]));
    return { folder, tokenizer: new Tokenizer(json, config), template, special, state: "unchecked", leaves: new Set(), isTyped: false };
  } catch (error) {
    return fail("SETTING_INVALID", `--tokenizer ${model}=${folder}: this tokenizer cannot be used here: ${(error as Error).message}`, { cause: error });
  }
}

/** A special token is a text, or an object with its content. */
function textOf(token: unknown): string | undefined {
  const content = typeof token === "object" && token !== null ? (token as { content?: unknown }).content : token;
  return typeof content === "string" ? content : undefined;
}

function render({ tokenizer, template, special, isTyped }: Local, { kind, body }: Prompt): Uint32Array | undefined {
  if (engineOnly.some((name) => body[name] !== undefined)) return undefined;
  try {
    if (kind === "completion") {
      const { prompt } = body;
      const first: unknown = Array.isArray(prompt) ? prompt[0] : prompt;
      if (typeof first !== "string" || first.length > MAX_CHARS) return undefined;
      return Uint32Array.from(tokenizer.encode(first, { add_special_tokens: body["add_special_tokens"] !== false }).ids);
    }
    if (kind !== "chat" || template === undefined || body["add_generation_prompt"] === false || body["tool_choice"] === "none") return undefined;
    const messages = (body["messages"] as readonly Message[]).map((message) => asTemplateTakes(message, isTyped));
    if (messages.includes(undefined)) return undefined;
    const more = (body["chat_template_kwargs"] ?? {}) as Body;
    const text = template.render({ ...special, messages, ...(body["tools"] == null ? {} : { tools: body["tools"] }), add_generation_prompt: true, ...more });
    if (text.length > MAX_CHARS) return undefined;
    // The template has written the special tokens.
    return Uint32Array.from(tokenizer.encode(text, { add_special_tokens: body["add_special_tokens"] === true }).ids);
  } catch {
    // A template raises for messages that it does not take: the engine says so to the client.
    return undefined;
  }
}

type Call = { readonly id?: unknown; readonly type?: unknown; readonly function?: { readonly name?: unknown; readonly arguments?: unknown } };

/** Engines join parts of a text in ways of their own, and give templates the arguments of calls as objects. */
function asTemplateTakes(message: Message, isTyped: boolean): Message | undefined {
  if (message.content != null && typeof message.content !== "string") return undefined;
  if (!Array.isArray(message.tool_calls)) return message;
  const calls = (message.tool_calls as Call[]).map((call) => {
    const given = call.function?.arguments;
    const read = typeof given === "string" ? (JSON.parse(given) as unknown) : given;
    if (!isTyped) return { ...call, function: { ...call.function, arguments: read } };
    return { id: call.id, function: { arguments: read, name: call.function?.name }, type: call.type };
  });
  return { ...message, tool_calls: calls };
}

function featuresOf({ body }: Prompt): Feature[] {
  const messages = Array.isArray(body["messages"]) ? (body["messages"] as (Message | null)[]) : [];
  const hasCalls = messages.some((message) => message?.tool_calls != null);
  return [...(body["tools"] == null ? [] : (["tools"] as const)), ...(hasCalls ? (["calls"] as const) : [])];
}

const areEqual = (ours: Uint32Array, theirs: Uint32Array) => ours.length === theirs.length && ours.every((token, at) => token === theirs[at]);
