// The settings of the store's REST service: Mooncake's configuration file with its own names, flags, and environment variables.
import { readFileSync } from "node:fs";
import { totalmem } from "node:os";
import { fail } from "@svc/contract/failures.ts";
import { loadConfig, type Sections } from "@svc/kit/config.ts";
import { logLevels } from "@svc/kit/log.ts";
import { peersFlagNames, peersSettings } from "@svc/kit/peers/settings.ts";
import { z } from "zod";
import { bucketURL } from "../client/cold/commands.ts";

const MIB = 2 ** 20;
const GIB = 2 ** 30;
/** The default size is this fraction of the machine's memory, within bounds; pages are allocated only when objects arrive. */
const AUTO_SHARE = 16;
const AUTO_LEAST = 64 * MIB;
const AUTO_MOST = GIB;
/** The granularity and minimum of a segment, as in Mooncake's store. */
const SEGMENT_LEAST = 16 * MIB;
const UNITS: Readonly<Record<string, number>> = { "": 1, b: 1, kb: 1024, mb: MIB, gb: GIB, tb: 1024 * GIB, kib: 1024, mib: MIB, gib: GIB, tib: 1024 * GIB };

/** Parses bytes as Mooncake writes them: 1073741824, "4 GB", "512mb" (powers of 1024). */
function bytesOf(given: string | number, context: z.RefinementCtx): number {
  const [, count, unit = ""] = /^\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?b)?\s*$/i.exec(String(given)) ?? [];
  const bytes = count === undefined ? Number.NaN : Math.floor(Number(count) * (UNITS[unit.toLowerCase()] ?? Number.NaN));
  if (!Number.isSafeInteger(bytes)) context.addIssue({ code: "custom", message: 'expected bytes such as 1073741824, "4 GB" or "512mb"' });
  return bytes;
}
const autoBytes = () => Math.min(AUTO_MOST, Math.max(AUTO_LEAST, Math.floor(totalmem() / AUTO_SHARE / MIB) * MIB));
const size = z.union([z.string(), z.number()]).transform((given, context) => (given === "auto" ? autoBytes() : bytesOf(given, context)));
/** A plain number counts bytes: a value that was meant in GB fails here, instead of as objects without capacity. */
const sizeFrom = (leastBytes: number) =>
  size.refine((bytes) => !(bytes > 0 && bytes < leastBytes), {
    message: `expected 0 for none, or at least ${leastBytes / MIB} MiB; a number without a unit counts bytes: "16 GB", "512mb"`,
  });
const count = (least: number, most: number) => z.number().int().min(least).max(most);

/** PROTOCOL=BYTES */
const limits = z.array(z.string()).transform((entries, context) => {
  const found = new Map<string, number>();
  for (const entry of entries) {
    const [, protocol = "", text = ""] = /^([a-z0-9_-]+)=(.+)$/.exec(entry) ?? [];
    const bytes = bytesOf(text, context);
    if (protocol === "" || !(bytes > 0)) context.addIssue({ code: "custom", message: `expected PROTOCOL=BYTES, got ${JSON.stringify(entry)}` });
    if (protocol === "tcp" || protocol === "rdma") context.addIssue({ code: "custom", message: `${protocol} always uses one segment and has no limit` });
    found.set(protocol, bytes);
  }
  return found as ReadonlyMap<string, number>;
});

export const serviceSettings = z.object({
  store_service: z
    .object({
      host: z.string().min(1, "expected an address to listen on"),
      port: count(0, 65_535),
      log_level: z.enum(logLevels),
      brand: z.string().regex(/^[a-zA-Z][a-zA-Z0-9_-]{0,30}$/, "expected one word of letters and digits, of those that the master's --brand lists"),
      local_hostname: z.string().min(1, "expected this host as peers reach it, or HOST:PORT"),
      metadata_server: z.string().min(1, "expected P2PHANDSHAKE or a metadata service"),
      master_server_address: z.string(),
      cluster_id: z.string().min(1, "expected the name of the masters' cluster"),
      global_segment_size: sizeFrom(SEGMENT_LEAST),
      local_buffer_size: size,
      protocol: z.string().min(1, "expected tcp, rdma or shm"),
      device_name: z.string(),
      enable_ssd_offload: z.boolean(),
      ssd_offload_path: z.string(),
      ssd_offload_size: sizeFrom(MIB),
      ssd_offload_sync: z.boolean(),
      nof_path: z.string().regex(/^(\/[^\0]{0,1024})?$/, "expected an absolute path, or nothing"),
      nof_size: sizeFrom(MIB),
      tenant_id: z.string(),
      stable_id: z.string().max(256),
      cold_tier_folders: z.array(z.string().startsWith("/", "expected an absolute path")).max(64),
      cold_tier_offload: z.enum(["trigger", "evict", "put"]),
      cold_tier_s3_prefixes: z.array(z.string().regex(bucketURL, "expected s3://BUCKET or s3://BUCKET/PREFIX")).max(64),
      cold_tier_s3_endpoint: z.string().regex(/^(https?:\/\/[^/?#@]+\/?)?$/, "expected http://HOST:PORT or https://HOST:PORT, without a path"),
      cold_tier_s3_region: z.string().regex(/^[a-z0-9-]{1,64}$/, "regions are lower-case letters, digits and -"),
      cold_tier_s3_path_style: z.boolean(),
      cold_tier_s3_credentials_file: z.string(),
      cold_tier_s3_cache_size: size,
      access_file: z.string(),
      token_file: z.string(),
      enable_client_http_server: z.boolean(),
      client_http_port: count(0, 65_535),
      max_mr_size: size,
      registration_limits: limits,
      max_wait_seconds: count(1, 86_400),
      max_body_bytes: count(1024, GIB),
      max_buffered_bytes: count(MIB, 2 ** 40),
      max_connections: count(1, 100_000),
    })
    .refine((service) => !service.enable_ssd_offload || service.ssd_offload_path !== "", {
      path: ["ssd_offload_path"],
      message: "expected a folder on the disk, since enable_ssd_offload is on",
    }),
  peers: peersSettings,
});

export type ServiceSettings = z.output<typeof serviceSettings>["store_service"];

/** Mooncake's names; -D NAME=VALUE accepts each of them as well. */
const mooncakeNames = [
  "local_hostname",
  "metadata_server",
  "master_server_address",
  "cluster_id",
  "global_segment_size",
  "local_buffer_size",
  "protocol",
  "device_name",
  "enable_ssd_offload",
  "ssd_offload_path",
  "ssd_offload_size",
  "ssd_offload_sync",
  "nof_path",
  "nof_size",
  "tenant_id",
  "stable_id",
  "enable_client_http_server",
  "client_http_port",
  "max_mr_size",
] as const;

export const serviceFlags: Readonly<Record<string, string>> = {
  host: "store_service.host",
  port: "store_service.port",
  brand: "store_service.brand",
  "log-level": "store_service.log_level",
  "max-wait-time": "store_service.max_wait_seconds",
  ...peersFlagNames,
  ...Object.fromEntries(mooncakeNames.map((name) => [name, `store_service.${name}`])),
};

/** The defaults of a Mooncake file for names that it leaves out; an empty required one is refused by name. */
const mooncakeDefaults = {
  local_hostname: "",
  metadata_server: "",
  master_server_address: "",
  global_segment_size: "3355443200",
  local_buffer_size: "1073741824",
  protocol: "tcp",
  device_name: "",
  tenant_id: "default",
};

/** Reads Mooncake's JSON file; unknown names are passed to `onUnknown`. */
export function readMooncakeFile(path: string, onUnknown: (names: readonly string[]) => void): Sections {
  let given: unknown;
  try {
    given = JSON.parse(readFileSync(path, "utf8"));
  } catch (error) {
    const what = error instanceof SyntaxError ? "is not valid JSON" : "cannot be read";
    return fail("SETTING_INVALID", `the service's configuration file ${path} ${what}: ${(error as Error).message}`, { cause: error });
  }
  if (typeof given !== "object" || given === null || Array.isArray(given))
    return fail("SETTING_INVALID", `${path}: expected a JSON object, got ${JSON.stringify(given)?.slice(0, 40)}`);
  const known: readonly string[] = mooncakeNames;
  const unknown = Object.keys(given).filter((name) => !known.includes(name));
  if (unknown.length > 0) onUnknown(unknown);
  const entries = Object.entries(given as Record<string, string | number | boolean | null>);
  return {
    store_service: {
      ...mooncakeDefaults,
      ...Object.fromEntries(entries.flatMap(([name, value]) => (known.includes(name) && value !== null ? [[name, value]] : []))),
    },
  };
}

/** Translates `-D NAME=VALUE` and `-DNAME=VALUE` to flags. */
export function withOverrides(argv: readonly string[]): string[] {
  const words: string[] = [];
  for (let at = 0; at < argv.length; at++) {
    const word = argv[at] as string;
    if (!word.startsWith("-D")) {
      words.push(word);
      continue;
    }
    const pair = word === "-D" ? (argv[++at] ?? "") : word.slice(2);
    if (!/^[a-z_]+=/.test(pair)) fail("SETTING_INVALID", `-D: expected NAME=VALUE, got ${JSON.stringify(pair)}`);
    words.push(`--store_service.${pair}`);
  }
  return words;
}

const MOONCAKE_VARIABLES: Readonly<Record<string, string>> = {
  MASTER: "MASTER_SERVER_ADDRESS",
  CLUSTER_ID: "CLUSTER_ID",
  TE_META_DATA_SERVER: "METADATA_SERVER",
  DEVICE: "DEVICE_NAME",
  LOCAL_HOSTNAME: "LOCAL_HOSTNAME",
  GLOBAL_SEGMENT_SIZE: "GLOBAL_SEGMENT_SIZE",
  LOCAL_BUFFER_SIZE: "LOCAL_BUFFER_SIZE",
  PROTOCOL: "PROTOCOL",
  TENANT_ID: "TENANT_ID",
};

type Environment = Readonly<Record<string, string | undefined>>;

/** Mooncake's variables begin with the brand, for example MYBRAND_MASTER; ours take precedence over them. */
export function withMooncakeVariables(env: Environment, argv: readonly string[]): Environment {
  const at = argv.findIndex((word) => word === "--brand" || word.startsWith("--brand="));
  const brand = at < 0 ? env["SVC_STORE_SERVICE_BRAND"] : (argv[at]?.split("=")[1] ?? argv[at + 1]);
  if (brand === undefined || brand === "") return env;
  const prefix = `${brand.toUpperCase()}_`;
  const found = Object.entries(MOONCAKE_VARIABLES).flatMap(([theirs, ours]) => {
    const value = env[`${prefix}${theirs}`];
    return value === undefined ? [] : [[`SVC_STORE_SERVICE_${ours}`, value] as const];
  });
  return { ...Object.fromEntries(found), ...env };
}

const about =
  "offers this machine's memory to the cache store, and mounts, puts and gets over HTTP. --config is Mooncake's JSON file. Without store_service.access_file everyone who reaches it may do everything.";

/** @throws SETTING_INVALID. `svc up` parses flags with it, too, before it starts anything. `onUnknown` gets the unknown names of Mooncake's file. */
export const load = (argv: readonly string[], onUnknown: (names: readonly string[]) => void = () => undefined) =>
  loadConfig({
    server: "store service",
    schema: serviceSettings,
    flagNames: serviceFlags,
    argv: withOverrides(argv),
    env: withMooncakeVariables(process.env, argv),
    about,
    ownFile: (path) => readMooncakeFile(path, onUnknown),
  });
