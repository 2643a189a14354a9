// Reads which engines there are: NAME=URL from flags, or a JSON file with more about each.
import { readFileSync } from "node:fs";
import { fail } from "@svc/contract/failures.ts";
import "@svc/contract/issues.ts";
import { issueText } from "@svc/contract/issues.ts";
import { engineName, engineUrl } from "@svc/kit/discovery/engine-entry.ts";
import { z } from "zod";
import type { RouterSettings } from "./settings.ts";

const MAX_ENGINES = 1_000;

const engineRecord = z.strictObject({
  /** The `instance_id` under which the indexer knows the engine. */
  name: engineName,
  url: engineUrl,
  /** The `modelname` of its registration, if it differs from the name that requests use. */
  indexer_model: z.string().min(1).max(1_024).optional(),
  /** Sent to the engine as a bearer token in place of the client's. */
  api_key: z
    .string()
    .regex(/^[\x21-\x7e]+$/, "expected printable characters without spaces")
    .optional(),
  prefill_tokens_per_second: z.number().min(1).max(1e9).optional(),
  max_in_flight: z.number().int().min(1).max(100_000).optional(),
  /** The engine's part in a prefill/decode pair; `both` means that it needs no partner. */
  role: z.enum(["prefill", "decode", "both"]).optional(),
  /** The connector that transfers the KV cache from the prefill to the decode engine. */
  connector: z.enum(["nixl", "mooncake", "sglang"]).optional(),
  /** The port of a prefill engine's bootstrap server, which decode engines ask first (SGLang, and vLLM's MooncakeConnector). */
  bootstrap_port: z.number().int().min(1).max(65_535).optional(),
});
export type EngineRecord = z.output<typeof engineRecord>;

/** @throws SETTING_INVALID with the entry that is wrong. */
export function readEngines(settings: Pick<RouterSettings, "engines" | "engines_file" | "discover">): EngineRecord[] {
  const given = settings.engines.map((text) => {
    const [, named = "", address = ""] =
      /^([^=]*)=(.*)$/s.exec(text) ?? fail("SETTING_INVALID", `--engine: expected NAME=http://HOST:PORT, got ${JSON.stringify(text)}`);
    return read({ name: named, url: address }, `--engine ${text}`);
  });
  if (settings.engines_file !== "") given.push(...readFile(settings.engines_file));
  if (given.length === 0 && settings.discover.length === 0)
    fail(
      "SETTING_INVALID",
      "there are no engines: give each with --engine NAME=http://HOST:PORT, all in a JSON file with --engines FILE, or say with --discover where they are found",
    );
  if (given.length > MAX_ENGINES) fail("SETTING_INVALID", `the maximum is ${MAX_ENGINES} engines, got ${given.length}`);
  const twice = given.find((one, at) => given.findIndex((other) => other.name === one.name) !== at);
  if (twice !== undefined) fail("SETTING_INVALID", `the engine ${twice.name} is given twice: give each a name of its own, the instance_id of its registration`);
  const same = given.find((one, at) => given.findIndex((other) => other.url === one.url) !== at);
  if (same !== undefined) fail("SETTING_INVALID", `two engines have the URL ${same.url}: expected one entry per engine`);
  return given;
}

function readFile(path: string): EngineRecord[] {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    return fail("SETTING_INVALID", `--engines: ${path} cannot be read: ${(error as Error).message}`, { cause: error });
  }
  let entries: unknown;
  try {
    entries = JSON.parse(text);
  } catch (error) {
    return fail("SETTING_INVALID", `--engines: ${path} is not valid JSON: ${(error as Error).message}`, { cause: error });
  }
  if (!Array.isArray(entries)) return fail("SETTING_INVALID", `--engines: ${path}: expected a list such as [{"name": "a", "url": "http://HOST:PORT"}]`);
  return entries.map((entry, at) => read(entry, `--engines: ${path}: entry ${at + 1}`));
}

function read(entry: unknown, where: string): EngineRecord {
  const parsed = engineRecord.safeParse(entry);
  if (parsed.success) return parsed.data;
  return fail("SETTING_INVALID", `${where}: ${issueText(parsed.error, entry)}`);
}
