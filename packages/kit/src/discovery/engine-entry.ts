// An engine as a source of discovery describes it: its address, and whatever the engine does not say itself.
import { issueText } from "@svc/contract/issues.ts";
import { z } from "zod";

export const engineUrl = z
  .string()
  .regex(/^http:\/\/[^/?#@\s]+\/?$/, "expected http://HOST:PORT")
  .refine((text) => URL.canParse(text), "expected http://HOST:PORT")
  .transform((text) => text.replace(/\/$/, ""));
export const engineName = z.string().regex(/^[A-Za-z0-9._:-]{1,128}$/, "expected letters, digits, '.', '_', ':' and '-', 128 characters or fewer");
const port = z.number().int().min(1).max(65_535);
const text = z.string().min(1).max(1_024);

/** All members except `url` and `name` override what the engine reports about itself; older engines do not report everything. */
export const engineEntry = z.strictObject({
  url: engineUrl,
  /** The `instance_id` of its registrations. Without it, the source's own name for the engine, or HOST:PORT. */
  name: engineName.optional(),
  type: z.enum(["vLLM", "SGLang"]).optional(),
  modelname: text.optional(),
  tenant_id: text.optional(),
  additionalsalt: z.string().max(1_024).optional(),
  block_size: z.number().int().min(1).max(65_536).optional(),
  /** Ports of the first data-parallel rank's publisher; rank r has its own at port + r. */
  events_port: port.optional(),
  replay_port: port.optional(),
  dp_size: z.number().int().min(1).max(1_024).optional(),
  /** Its role in a pair of a prefill and a decode engine. */
  role: z.enum(["prefill", "decode", "both"]).optional(),
  /** The protocol that carries the KV cache from prefill to decode engines: vLLM's NixlConnector or MooncakeConnector, or SGLang's own. */
  connector: z.enum(["nixl", "mooncake", "sglang"]).optional(),
  /** The port at which a prefill engine introduces decode engines: SGLang's, and that of vLLM's MooncakeConnector. */
  bootstrap_port: port.optional(),
  /** Sent to the engine as a bearer token. */
  api_key: z
    .string()
    .regex(/^[\x21-\x7e]+$/, "expected printable characters without spaces")
    .optional(),
});
export type EngineEntry = z.output<typeof engineEntry>;
/** An entry with the name by which everything else knows it. */
export type NamedEntry = EngineEntry & { readonly name: string };

/** @throws Error with a sentence that names the member which is wrong. */
export function readEntry(input: unknown, where: string): EngineEntry {
  const parsed = engineEntry.safeParse(input);
  if (!parsed.success) throw new Error(`${where}: ${issueText(parsed.error, input)}`);
  return parsed.data;
}

export const named = (entry: EngineEntry, name: string = new URL(entry.url).host): NamedEntry => ({ ...entry, name: entry.name ?? name });
