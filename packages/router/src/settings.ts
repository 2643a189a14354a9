// The settings a router reads, and what each may be; config/default.toml explains them.
import { loadConfig } from "@svc/kit/config.ts";
import { listenAddress } from "@svc/kit/listen.ts";
import { logLevels } from "@svc/kit/log.ts";
import { peersFlagNames, peersSettings } from "@svc/kit/peers/settings.ts";
import { joinRepeated } from "@svc/kit/repeated-flags.ts";
import { z } from "zod";

const count = (least: number, most: number) => z.number().int().min(least).max(most);
const urlAfter = (scheme: RegExp, expected: string) =>
  z.union([z.literal(""), z.string().regex(new RegExp(`^${scheme.source}[^/?#@\\s]+/?$`), expected)]).transform((text) => text.replace(/\/$/, ""));
const optionalURL = urlAfter(/http:\/\//, "expected http://HOST:PORT");
const secret = z.string().regex(/^[\x21-\x7e]*$/, "expected printable characters without spaces");

export const routerSettings = z.object({
  router: z.object({
    listen: listenAddress,
    log_level: z.enum(logLevels),
    indexer: urlAfter(/https?:\/\//, "expected http://HOST:PORT, or https://HOST:PORT with peers.certs"),
    indexer_timeout_ms: count(1, 60_000),
    picker: z.union([z.literal(""), listenAddress]),
    engines: z.array(z.string()).max(1_000),
    engines_file: z.string(),
    discover: z.array(z.string()).max(64),
    renderer: optionalURL,
    tokenizers: z.array(z.string()).max(64),
    tenant: z.string().min(1).max(1_024),
    api_key: secret,
    admin_key: secret,
    explain: z.boolean(),
    max_body_bytes: count(1_024, 1 << 30),
    max_held_bytes: count(1_024, 2 ** 36),
    max_in_flight: count(1, 100_000),
    queue: count(0, 1_000_000),
    queue_timeout_seconds: z.number().min(0.05).max(3_600),
    connect_timeout_ms: count(10, 60_000),
    first_byte_seconds: z.number().min(0.1).max(86_400),
    idle_seconds: z.number().min(0.1).max(86_400),
    poll_ms: count(50, 60_000),
    circuit_failures: count(1, 1_000),
    tokens_timeout_ms: count(1, 60_000),
    token_cache_mb: count(0, 65_536),
    speculative_seconds: z.number().min(0).max(3_600),
    uncertain_share: z.number().min(0).max(1),
    prefill_tokens_per_second: z.number().min(1).max(1e9),
    running_request_seconds: z.number().min(0).max(60),
    kv_full_seconds: z.number().min(0).max(3_600),
    tie_seconds: z.number().min(0).max(60),
  }),
  peers: peersSettings,
});

export type RouterSettings = z.output<typeof routerSettings>["router"];

const flagNames = {
  listen: "router.listen",
  indexer: "router.indexer",
  engine: "router.engines",
  engines: "router.engines_file",
  discover: "router.discover",
  picker: "router.picker",
  renderer: "router.renderer",
  tokenizer: "router.tokenizers",
  explain: "router.explain",
  "log-level": "router.log_level",
  ...peersFlagNames,
};
const about =
  "an OpenAI-compatible front for inference engines: it sends each prompt to the engine that will have it prefilled first. Give each engine with --engine NAME=http://HOST:PORT, or all in a file with --engines FILE, or where they are found with --discover, and the cache indexer with --indexer http://HOST:PORT.";

/** @throws SETTING_INVALID. */
export const load = (argv: readonly string[]) =>
  loadConfig({ server: "router", schema: routerSettings, flagNames, argv: ["engine", "discover", "tokenizer"].reduce(joinRepeated, argv), about });
