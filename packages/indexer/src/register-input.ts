// A register body becomes a registration: fields, the publisher's kind, the key that names it.
import type { Registration } from "@svc/contract/indexer.ts";
import { registration } from "@svc/contract/indexer.ts";
import { Refusal, refusalOf } from "./refusal.ts";

export type PublisherKind = "engine" | "store";

const engineWords = ["vllm", "sglang"];
const storeWords = ["mooncake"];

export type Identity = { readonly instance_id: string; readonly tenant_id: string; readonly dp_rank: number };

/** What tells a registration from all others: its parts may have any character. */
export function keyOf({ instance_id, tenant_id, dp_rank }: Identity): string {
  return JSON.stringify([instance_id, tenant_id, dp_rank]);
}

/** As people and `removed_instances` read it. */
export function nameOf(record: Identity): string {
  return `${record.instance_id}|${record.tenant_id}|${record.dp_rank}`;
}

export function readRegistration(input: unknown, brands: readonly string[]): Registration {
  const parsed = registration.safeParse(input);
  if (!parsed.success) throw refusalOf(parsed.error, input);
  kindOf(parsed.data.type, brands);
  readEndpoint(parsed.data.endpoint, "endpoint");
  if (parsed.data.replay_endpoint !== "") readEndpoint(parsed.data.replay_endpoint, "replay_endpoint");
  return parsed.data;
}

export function kindOf(type: string, brands: readonly string[]): PublisherKind {
  const word = type.toLowerCase();
  if (engineWords.includes(word)) return "engine";
  if (storeWords.includes(word) || brands.some((brand) => brand.toLowerCase() === word)) return "store";
  throw new Refusal("invalid_value", `type: expected vLLM, SGLang, Mooncake or ${brands.join(", ")}, got ${JSON.stringify(type)}`, { field: "type" });
}

export type Endpoint = { readonly address: string; readonly binds: boolean };

/** An address without a host of its own cannot be dialled: there the publisher connects, and we bind. */
export function readEndpoint(address: string, field: string): Endpoint {
  if (/^ipc:\/\/./.test(address)) return { address, binds: false };
  const match = /^tcp:\/\/(\[[^\]]+\]|[^[\]]*):(\d{1,5})$/.exec(address);
  const host = match?.[1] ?? "";
  const port = Number(match?.[2] ?? 0);
  if (match === null || host === "" || port < 1 || port > 65535)
    throw new Refusal("invalid_value", `${field}: expected tcp://HOST:PORT or ipc://PATH, got ${JSON.stringify(address)}`, { field });
  const binds = host === "*" || host === "0.0.0.0" || host === "::" || host === "[::]";
  return { address: host === "::" ? `tcp://[::]:${port}` : address, binds };
}

/** The registrations of a configuration: a list, or {"kvevent_instance": {NAME: {…}}} where NAME is the instance. */
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
      return readRegistration(record, brands);
    } catch (error) {
      if (error instanceof Refusal) throw new Refusal(error.reason, `${origin}, registration ${index}: ${error.message}`, error.where);
      throw error;
    }
  });
}
