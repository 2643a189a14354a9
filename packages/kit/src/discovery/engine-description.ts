// Asks an engine what it serves and where it publishes its KV events, by vLLM's and SGLang's own descriptions.
import { z } from "zod";
import type { NamedEntry } from "./engine-entry.ts";

const CALL_MS = 5_000;
/** Where SGLang publishes if its configuration names no endpoint. */
const SGLANG_ENDPOINT = "tcp://*:5557";
const MAX_ANSWER_BYTES = 16 * 1024 * 1024;

export type Publisher = { readonly rank: number; readonly endpoint: string; readonly replayEndpoint: string };
export type EngineDescription = {
  readonly type: "vLLM" | "SGLang";
  readonly model: string;
  readonly blockSize: number;
  /** One per data-parallel rank; none if the engine publishes no events. */
  readonly publishers: readonly Publisher[];
  readonly role: "prefill" | "decode" | "both";
  readonly bootstrapPort: number | undefined;
};

const models = z.object({ data: z.array(z.object({ id: z.string(), owned_by: z.string().nullish(), parent: z.string().nullish() })) });
const eventsConfig = z.object({
  enable_kv_cache_events: z.boolean().nullish(),
  publisher: z.string().nullish(),
  endpoint: z.string().nullish(),
  replay_endpoint: z.string().nullish(),
});
/** Keys are data-parallel ranks, each with the endpoints that the rank really uses. */
const eventSources = z.record(z.string().regex(/^\d+$/), eventsConfig);
const vllmInfo = z.object({
  vllm_config: z.object({
    kv_events_config: eventsConfig.nullish(),
    cache_config: z.object({ block_size: z.number().nullish() }).nullish(),
    parallel_config: z.object({ data_parallel_size: z.number().nullish() }).nullish(),
    kv_transfer_config: z.object({ kv_role: z.string().nullish() }).nullish(),
  }),
});
const sglangInfo = z.object({
  kv_events_config: z.union([z.string(), eventsConfig]).nullish(),
  page_size: z.number().nullish(),
  dp_size: z.number().nullish(),
  served_model_name: z.string().nullish(),
  model_path: z.string().nullish(),
  disaggregation_mode: z.string().nullish(),
  disaggregation_bootstrap_port: z.number().nullish(),
});

type EventsConfig = z.output<typeof eventsConfig>;
type Told = {
  type?: "vLLM" | "SGLang";
  model?: string;
  blockSize?: number;
  publishers?: Publisher[];
  role?: EngineDescription["role"];
  bootstrapPort?: number;
};

/** @throws Error that says what is missing, and which member of the entry would say it instead. */
export async function describeEngine(entry: NamedEntry, signal?: AbortSignal): Promise<EngineDescription> {
  const ask = async (path: string) => get(entry, path, signal);
  const { data } = read(models, await ask("/v1/models")) ?? { data: [] };
  const base = data.find(({ parent }) => parent == null);
  const info = await ask("/server_info?config_format=json").then(async (text) => text ?? ask("/get_server_info"));
  const isVllm = entry.type === "vLLM" || (entry.type === undefined && base?.owned_by !== "sglang" && read(vllmInfo, info) !== undefined);
  const told = isVllm || base?.owned_by === "vllm" ? await vllmTold(entry, info, ask) : sglangTold(entry, info);
  const type = entry.type ?? told.type;
  if (type === undefined) throw new Error(`${entry.url} describes itself neither as vLLM nor as SGLang does: give its "type" in the entry`);
  const model = entry.modelname ?? told.model ?? base?.id;
  if (model === undefined) throw new Error(`${entry.url}/v1/models names no model: give "modelname" in the entry`);
  const publishers = given(entry) ?? told.publishers ?? [];
  const blockSize = entry.block_size ?? told.blockSize;
  if (blockSize === undefined) throw new Error(`${entry.url} does not say its block size: give "block_size" in the entry`);
  return { type, model, blockSize, publishers, role: entry.role ?? told.role ?? "both", bootstrapPort: entry.bootstrap_port ?? told.bootstrapPort };
}

async function vllmTold(entry: NamedEntry, info: string | undefined, ask: (path: string) => Promise<string | undefined>): Promise<Told> {
  const config = read(vllmInfo, info)?.vllm_config;
  const sources = read(eventSources, await ask("/kv_event_sources"));
  const metrics = await ask("/metrics");
  const blockSize = config?.cache_config?.block_size ?? Number(/^vllm:cache_config_info\{[^\n]*\bblock_size="(\d+)"/m.exec(metrics ?? "")?.[1] ?? Number.NaN);
  const publishers =
    sources === undefined
      ? ranked(entry, config?.kv_events_config ?? undefined, config?.parallel_config?.data_parallel_size ?? 1)
      : Object.entries(sources).flatMap(([rank, source]) => publisherOf(entry, source, Number(rank), 0));
  const role = config?.kv_transfer_config?.kv_role;
  return {
    type: "vLLM",
    publishers,
    ...(Number.isInteger(blockSize) ? { blockSize } : {}),
    ...(role === "kv_producer" ? { role: "prefill" } : role === "kv_consumer" ? { role: "decode" } : {}),
  };
}

function sglangTold(entry: NamedEntry, info: string | undefined): Told {
  const told = read(sglangInfo, info);
  if (told?.page_size == null) return {};
  const text = told.kv_events_config;
  const given = typeof text === "string" ? read(eventsConfig, text) : (text ?? undefined);
  // SGLang reports the text of its flag, in which members may be missing; if `publisher` is missing, it publishes nothing.
  const config = given === undefined ? undefined : { ...given, publisher: given.publisher ?? "null", endpoint: given.endpoint ?? SGLANG_ENDPOINT };
  const mode = told.disaggregation_mode;
  return {
    type: "SGLang",
    blockSize: told.page_size,
    publishers: ranked(entry, config, told.dp_size ?? 1),
    ...(told.served_model_name == null ? {} : { model: told.served_model_name }),
    ...(mode === "prefill" || mode === "decode" ? { role: mode } : {}),
    ...(told.disaggregation_bootstrap_port == null ? {} : { bootstrapPort: told.disaggregation_bootstrap_port }),
  };
}

/** The endpoints that the entry itself names. */
function given(entry: NamedEntry): Publisher[] | undefined {
  const { events_port: events, replay_port: replay, dp_size: ranks = 1 } = entry;
  if (events === undefined) return undefined;
  return ranked(entry, { endpoint: `tcp://*:${events}`, replay_endpoint: replay === undefined ? null : `tcp://*:${replay}` }, ranks);
}

const ranked = (entry: NamedEntry, config: EventsConfig | undefined, ranks: number): Publisher[] =>
  config === undefined ? [] : Array.from({ length: entry.dp_size ?? ranks }, (_, rank) => publisherOf(entry, config, rank, rank)).flat();

/** Rank r publishes at the port of rank 0 plus r. `offset` is added to the given ports: r if they are those of rank 0, else 0. */
function publisherOf(
  { url }: NamedEntry,
  { publisher, enable_kv_cache_events: enabled, endpoint, replay_endpoint: replay }: EventsConfig,
  rank: number,
  offset: number,
): Publisher[] {
  if (publisher === "null" || enabled === false || endpoint == null) return [];
  const { hostname } = new URL(url);
  const at = (address: string | null | undefined): string | undefined => {
    const [, host = "", port = ""] = /^tcp:\/\/(.*):(\d+)$/.exec(address ?? "") ?? [];
    if (port === "") return undefined;
    const isWildcard = ["*", "0.0.0.0", "::", "[::]"].includes(host);
    // If the endpoint names a host, the engine does not listen but connects to it, so the indexer listens on that port.
    return `tcp://${isWildcard ? hostname : "*"}:${Number(port) + offset}`;
  };
  const address = at(endpoint);
  const replayAddress = at(replay);
  if (address === undefined) return [];
  // The engine itself always listens for replay requests.
  return [{ rank, endpoint: address, replayEndpoint: replayAddress === undefined ? "" : replayAddress.replace("//*:", `//${hostname}:`) }];
}

function read<T>(schema: z.ZodType<T>, text: string | undefined): T | undefined {
  if (text === undefined) return undefined;
  try {
    return schema.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}

/** Undefined unless the answer is 200. @throws Error where nothing answers. */
async function get({ url, api_key: key }: NamedEntry, path: string, signal: AbortSignal | undefined): Promise<string | undefined> {
  const bound = AbortSignal.timeout(CALL_MS);
  const response = await fetch(url + path, {
    headers: key === undefined ? {} : { authorization: `Bearer ${key}` },
    signal: signal === undefined ? bound : AbortSignal.any([bound, signal]),
    redirect: "error",
  }).catch((error: Error) => {
    throw new Error(`${url}${path}: ${(error.cause as Error | undefined)?.message ?? error.message}`);
  });
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of response.body ?? []) {
    bytes += chunk.length;
    if (bytes > MAX_ANSWER_BYTES) throw new Error(`${url}${path} answered more than ${MAX_ANSWER_BYTES} bytes`);
    chunks.push(chunk);
  }
  return response.status === 200 ? Buffer.concat(chunks).toString("utf8") : undefined;
}
