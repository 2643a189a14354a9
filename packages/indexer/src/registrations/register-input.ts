// Converts a register body to a registration: its fields, the publisher's kind, and its key.
import type { Registration } from "@svc/contract/indexer.ts";
import { registration } from "@svc/contract/indexer.ts";
import { Refusal, refusalOf } from "../http/refusal.ts";

export type PublisherKind = "engine" | "store";

const engineTypes = ["vllm", "sglang"];
const storeTypes = ["mooncake"];
/** The maximum number of masters of one store. */
const MAX_ENDPOINTS = 8;

/** `type`: the publisher's; without it, an engine is meant. */
export type Identity = { readonly instance_id: string; readonly tenant_id: string; readonly dp_rank: number; readonly type?: string };

/** The unique key of a registration; JSON, since its parts may contain any character. A cache that runs next to an engine has the engine's identity. */
export function keyOf({ instance_id, tenant_id, dp_rank, type = "vllm" }: Identity): string {
  return JSON.stringify(engineTypes.includes(type.toLowerCase()) ? [instance_id, tenant_id, dp_rank] : [instance_id, tenant_id, dp_rank, "store"]);
}

/** The keys of all publishers that an identity may have. */
export const keysOf = (identity: Omit<Identity, "type">): string[] => ["vllm", "store"].map((type) => keyOf({ ...identity, type }));

/** The name that people and `removed_instances` read. */
export function nameOf(record: Identity): string {
  return `${record.instance_id}|${record.tenant_id}|${record.dp_rank}`;
}

export function readRegistration(input: unknown, brands: readonly string[]): Registration {
  const parsed = registration.safeParse(input);
  if (!parsed.success) throw refusalOf(parsed.error, input);
  const kind = kindOf(parsed.data.type, brands);
  for (const field of ["endpoint", "replay_endpoint"] as const) {
    if (parsed.data[field] === "" && field === "replay_endpoint") continue;
    const endpoints = readEndpoints(parsed.data[field], field);
    if (endpoints.length > 1 && kind !== "store")
      throw new Refusal(
        "invalid_value",
        `${field}: expected one endpoint, got ${endpoints.length}: only a store has several masters; register each engine by itself`,
        {
          field,
        },
      );
  }
  return parsed.data;
}

/** Checks a new registration only: one that was stored before this check existed stays valid. */
export function checkReplays(record: Registration): Registration {
  const count = (text: string) => text.split(";").length;
  const { endpoint, replay_endpoint: replay } = record;
  if (replay === "" || count(replay) === count(endpoint)) return record;
  throw new Refusal(
    "invalid_value",
    `replay_endpoint: expected as many endpoints as endpoint has (${count(endpoint)}), got ${count(replay)}: each of a store's masters answers replays at its own`,
    { field: "replay_endpoint" },
  );
}

export function kindOf(type: string, brands: readonly string[]): PublisherKind {
  const name = type.toLowerCase();
  if (engineTypes.includes(name)) return "engine";
  if (storeTypes.includes(name) || brands.some((brand) => brand.toLowerCase() === name)) return "store";
  throw new Refusal("invalid_value", `type: expected vLLM, SGLang, Mooncake or ${brands.join(", ")}, got ${JSON.stringify(type)}`, { field: "type" });
}

/**
 * vLLM keeps a block that it computes again next to the first one, and sends a stored event and a removal for each copy. SGLang and stores
 * have a block once and may report it again, so one removal removes it, however often it was stored.
 */
export function countsCopies(type: string): boolean {
  return type.toLowerCase() === "vllm";
}

export type Endpoint = { readonly address: string; readonly binds: boolean };

/** Reads the endpoints of a store's masters, of which one publishes at a time; every other publisher has one endpoint. */
export function readEndpoints(text: string, field: string): readonly Endpoint[] {
  const endpoints = text.split(";").map((address) => readEndpoint(address.trim(), field));
  if (endpoints.length > MAX_ENDPOINTS)
    throw new Refusal("out_of_range", `${field}: expected up to ${MAX_ENDPOINTS} endpoints, got ${endpoints.length}`, { field });
  if (endpoints.length > 1 && endpoints.some(({ binds }) => binds))
    throw new Refusal("invalid_value", `${field}: expected the address of each master, got one that publishers connect to among several`, { field });
  return endpoints;
}

/** An address without a specific host cannot be dialled: the indexer binds it and the publisher connects. */
function readEndpoint(address: string, field: string): Endpoint {
  if (/^ipc:\/\/./.test(address)) return { address, binds: false };
  const match = /^tcp:\/\/(\[[^\]]+\]|[^[\]]*):(\d{1,5})$/.exec(address);
  const host = match?.[1] ?? "";
  const port = Number(match?.[2] ?? 0);
  if (match === null || host === "" || port < 1 || port > 65535)
    throw new Refusal("invalid_value", `${field}: expected tcp://HOST:PORT or ipc://PATH, got ${JSON.stringify(address)}`, { field });
  if (/[@/?#\s]/.test(host))
    throw new Refusal("invalid_value", `${field}: expected tcp://HOST:PORT with a host name or an address alone, got ${JSON.stringify(address)}`, { field });
  const binds = host === "*" || host === "0.0.0.0" || host === "::" || host === "[::]";
  return { address: host === "::" ? `tcp://[::]:${port}` : address, binds };
}

/** Reads the registrations of a configuration: a list, or {"kvevent_instance": {NAME: {…}}} where NAME is the instance. */
export function readStatic(text: string, origin: string, brands: readonly string[]): Registration[] {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Refusal("invalid_value", `${origin} is not valid JSON: ${(error as Error).message}`);
  }
  const named = (value as { kvevent_instance?: unknown } | null)?.kvevent_instance;
  const records = Array.isArray(value)
    ? value
    : typeof named === "object" && named !== null
      ? Object.entries(named).map(([instance, record]) => ({ instance_id: instance, ...(record as object) }))
      : undefined;
  if (records === undefined) throw new Refusal("invalid_type", `${origin}: expected a list of registrations, or {"kvevent_instance": {NAME: {...}}}`);
  return records.map((record, index) => {
    try {
      return checkReplays(readRegistration(record, brands));
    } catch (error) {
      if (error instanceof Refusal) throw new Refusal(error.reason, `${origin}, registration ${index}: ${error.message}`, error.where);
      throw error;
    }
  });
}
