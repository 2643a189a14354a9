// The verbs that talk to a running indexer: query, register, unregister, services.
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { fail } from "@svc/contract/failures.ts";
import { IndexClient, type QueryScope } from "@svc/contract/index-client.ts";
import type { Freshness, Match, QueryAnswer } from "@svc/contract/indexer.ts";
import { outputFormat, printJSON, printTable } from "@svc/contract/table.ts";
import { indexerURL } from "./address.ts";

const options = {
  url: { type: "string" },
  output: { type: "string", short: "o" },
  model: { type: "string" },
  "block-size": { type: "string" },
  tokens: { type: "string" },
  file: { type: "string" },
  hashes: { type: "string" },
  tenant: { type: "string" },
  instance: { type: "string" },
  "lora-name": { type: "string" },
  "cache-salt": { type: "string" },
  "additional-salt": { type: "string" },
  endpoint: { type: "string" },
  "replay-endpoint": { type: "string" },
  type: { type: "string" },
  "dp-rank": { type: "string" },
  explain: { type: "boolean" },
  "api-key": { type: "string" },
} as const;

const MAX_U32 = 0xffffffffn;
const MAX_U64 = 0xffffffffffffffffn;

type Values = ReturnType<typeof read>;

export async function ask(verb: "query" | "register" | "unregister" | "services", argv: readonly string[]): Promise<number> {
  const values = read(argv);
  const url = indexerURL(values.url);
  const client = new IndexClient(url, { apiKey: values["api-key"] ?? process.env["SVC_INDEXER_API_KEY"] });
  const { output } = values;
  if (output !== undefined && output !== "json" && output !== "table")
    fail("INVALID_REQUEST", `--output: expected table or json, got ${JSON.stringify(output)}`);
  const json = outputFormat(output) === "json";
  if (verb === "query") return query(values, client, url, json);
  if (verb === "services") {
    const answer = (await client.services()) as { services: Row[] };
    print(answer, json, () => answer.services.map(serviceRow));
    return 0;
  }
  const instance_id = need(values, "instance");
  const dp_rank = whole(values, "dp-rank");
  const tenant = values.tenant === undefined ? {} : { tenant_id: values.tenant };
  if (verb === "unregister") {
    print(await client.unregister({ instance_id, dp_rank, ...tenant }), json, ({ removed_instances }) => removed_instances.map((removed) => ({ removed })));
    return 0;
  }
  const answer = await client.register({
    endpoint: need(values, "endpoint"),
    replay_endpoint: values["replay-endpoint"],
    type: need(values, "type"),
    modelname: need(values, "model"),
    lora_name: values["lora-name"],
    instance_id,
    dp_rank,
    block_size: whole(values, "block-size"),
    additionalsalt: values["additional-salt"],
    ...tenant,
  });
  print(answer, json, () => [answer]);
  return 0;
}

async function query(values: Values, client: IndexClient, url: string, json: boolean): Promise<number> {
  const scope: QueryScope = {
    model: need(values, "model"),
    blockSize: whole(values, "block-size"),
    ...(values.tenant === undefined ? {} : { tenantID: values.tenant }),
    ...(values.instance === undefined ? {} : { instanceID: values.instance }),
    ...(values["lora-name"] === undefined ? {} : { loraName: values["lora-name"] }),
    ...(values["cache-salt"] === undefined ? {} : { cacheSalt: values["cache-salt"] }),
    freshness: true,
  };
  const given = (["tokens", "file", "hashes"] as const).filter((name) => values[name] !== undefined);
  if (given.length > 1) fail("INVALID_REQUEST", `expected one of --tokens, --file and --hashes, got ${given.map((name) => `--${name}`).join(" and ")}`);
  if (values.hashes !== undefined) {
    if (values.explain === true) fail("INVALID_REQUEST", "--explain: expected --tokens or --file, got --hashes, which say nothing of how a prompt is hashed");
    const answer = await client.queryByHash(
      BigUint64Array.from(values.hashes.split(","), (text) => wholeOf("--hashes", text.trim(), MAX_U64)),
      scope,
    );
    print(answer, json, matchRows);
    return 0;
  }
  const tokens = tokensOf(values);
  if (values.explain === true) {
    const body = {
      model: scope.model,
      block_size: scope.blockSize,
      token_ids: [...tokens],
      tenant_id: scope.tenantID,
      instance_id: scope.instanceID,
      lora_name: scope.loraName,
      cache_salt: scope.cacheSalt,
    };
    const response = await fetch(`${url.replace(/\/+$/, "")}/explain`, { method: "POST", body: JSON.stringify(body) });
    printJSON(await response.json());
    return response.ok ? 0 : 1;
  }
  print(await client.query(tokens, scope), json, matchRows);
  return 0;
}

function read(argv: readonly string[]) {
  try {
    return parseArgs({ args: [...argv], options, allowPositionals: false }).values;
  } catch (error) {
    return fail("INVALID_REQUEST", `${(error as Error).message}; \`svc index --help\` lists the flags`);
  }
}

function need(values: Values, name: "model" | "instance" | "endpoint" | "type"): string {
  return values[name] ?? fail("INVALID_REQUEST", `--${name} is missing; \`svc index --help\` lists the flags`);
}

function whole(values: Values, name: "block-size" | "dp-rank"): number {
  const text = values[name] ?? fail("INVALID_REQUEST", `--${name} is missing; \`svc index --help\` lists the flags`);
  return Number(wholeOf(`--${name}`, text, MAX_U32));
}

function wholeOf(what: string, text: string, most: bigint): bigint {
  const value = /^\d{1,20}$/.test(text) ? BigInt(text) : -1n;
  return value >= 0n && value <= most ? value : fail("INVALID_REQUEST", `${what}: expected whole numbers from 0 to ${most}, got ${JSON.stringify(text)}`);
}

function tokensOf(values: Values): Uint32Array {
  if (values.tokens !== undefined) return Uint32Array.from(values.tokens.split(","), (text) => Number(wholeOf("--tokens", text.trim(), MAX_U32)));
  if (values.file === undefined) return fail("INVALID_REQUEST", "expected --tokens 1,2,3, --file TOKENS.json or --hashes H1,H2");
  let list: unknown;
  try {
    list = JSON.parse(readFileSync(values.file, "utf8"));
  } catch (error) {
    return fail("INVALID_REQUEST", `--file: ${values.file} cannot be read as JSON: ${(error as Error).message}`, { cause: error });
  }
  if (!Array.isArray(list)) return fail("INVALID_REQUEST", `--file: expected ${values.file} to have a list of whole numbers`);
  return Uint32Array.from(list, (token: unknown) => Number(wholeOf(`--file ${values.file}`, String(token), MAX_U32)));
}

type Row = {
  instance_id: string;
  tenant_id: string;
  dp_rank: number;
  endpoint: string;
  freshness: Freshness;
  streams: { medium: string; blocks: number }[];
  doctor: string[];
};

function serviceRow({ instance_id, tenant_id, dp_rank, endpoint, freshness, streams, doctor }: Row) {
  const blocks = streams.map(({ medium, blocks }) => `${medium} ${blocks}`).join(", ");
  return {
    instance: instance_id,
    tenant: tenant_id,
    rank: dp_rank,
    endpoint,
    blocks,
    sequence: freshness.last_sequence,
    gap: freshness.gap,
    doctor: doctor[0] ?? "ok",
  };
}

function matchRows(answer: QueryAnswer) {
  const all: [string, Match][] = Object.values(answer).flatMap((instances) => Object.entries(instances));
  return all
    .sort(([, a], [, b]) => b.longest_matched - a.longest_matched)
    .map(([instance, { longest_matched, GPU, CPU, DISK, freshness }]) => ({
      instance,
      longest_matched,
      GPU,
      CPU,
      DISK,
      gap: Object.values(freshness ?? {}).some(({ gap }) => gap),
    }));
}

/** The columns are named like the members of the rows. */
function print<T>(value: T, json: boolean, rows: (value: T) => object[]): void {
  if (json) {
    printJSON(value);
    return;
  }
  const shown = rows(value);
  const columns = Object.keys(shown[0] ?? {});
  printTable(
    columns.map((name) => name.toUpperCase().replaceAll("_", " ")),
    shown.map((row) => columns.map((name) => String((row as Record<string, unknown>)[name]))),
  );
}
