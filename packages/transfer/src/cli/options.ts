// The command line of a tool: flags that all tools share, and their fallbacks in the settings.
import { parseArgs } from "node:util";
import { fail } from "@svc/contract/failures.ts";
import { homeDirectory } from "@svc/contract/home.ts";
import { loadConfig } from "@svc/kit/config.ts";
import { logLevels } from "@svc/kit/log.ts";
import { ownServer } from "@svc/kit/own-server.ts";
import { z } from "zod";
import { TransferEngine } from "../engine.ts";
import type { Proto } from "../engine-options.ts";

const settings = z.object({
  transfer: z.object({ metadata: z.string(), brand: z.string().regex(/^[^/\s]+$/, "expected a word without a slash"), log_level: z.enum(logLevels) }),
});

export type Flags = Readonly<Record<string, string | undefined>>;
export type ToolArgs = {
  readonly positionals: readonly string[];
  readonly flags: Flags;
  readonly metadata: string;
  readonly brand: string;
  readonly logLevel: string;
  readonly json: boolean;
};

/** As config/default.toml has transfer.metadata. */
const DEFAULT_METADATA = "http://127.0.0.1:8081/metadata";

const shared = ["metadata", "brand", "config", "host", "name", "output", "transports"];

export function readArgs(argv: readonly string[], own: readonly string[]): ToolArgs {
  const options = Object.fromEntries([...shared, ...own].map((name) => [name, { type: "string" as const }]));
  let parsed: { values: Record<string, unknown>; positionals: string[] };
  try {
    parsed = parseArgs({ args: withNegatives(argv, options), options, allowPositionals: true });
  } catch (error) {
    return fail("INVALID_REQUEST", (error as Error).message, { cause: error });
  }
  const flags = parsed.values as Flags;
  const config = flags["config"] === undefined ? [] : [`--config=${flags["config"]}`];
  const loaded = loadConfig({ server: "transfer", schema: settings, flagNames: {}, argv: config, about: "" });
  if (loaded === "help") return fail("INTERNAL", "unexpected help");
  const { metadata, brand, log_level: logLevel } = loaded.settings.transfer;
  if (flags["output"] !== undefined && flags["output"] !== "json" && flags["output"] !== "text")
    fail("INVALID_REQUEST", `--output: expected json or text, got ${flags["output"]}`);
  return {
    positionals: parsed.positionals,
    flags,
    metadata: flags["metadata"] ?? ownMetadata(metadata),
    brand: flags["brand"] ?? brand,
    logLevel,
    json: flags["output"] === "json",
  };
}

/** Returns `metadata` if a setting names it, otherwise the URL of this machine's own metadata server, wherever that listens. */
function ownMetadata(metadata: string): string {
  const isNamed = metadata !== DEFAULT_METADATA || (process.env["SVC_TRANSFER_METADATA"] ?? "") !== "";
  return isNamed ? metadata : (ownServer(homeDirectory(), "metadata")?.url ?? metadata);
}

/** A number below zero is a value, so that it is refused as one, and not taken for a flag. */
function withNegatives(argv: readonly string[], options: object): string[] {
  const args: string[] = [];
  for (const word of argv) {
    const flag = args.at(-1) ?? "";
    if (/^-\d/.test(word) && flag.startsWith("--") && Object.hasOwn(options, flag.slice(2))) args.splice(-1, 1, `${flag}=${word}`);
    else args.push(word);
  }
  return args;
}

/** Opens an engine for the duration of one command. */
export async function openEngine(args: ToolArgs, fallbackName: string): Promise<TransferEngine> {
  const levels: Readonly<Record<string, number>> = { trace: 2, debug: 2, info: 2, warn: 1 };
  const engine = new TransferEngine({ settings: { brand: args.brand, log_level: levels[args.logLevel] ?? 0 } });
  const handshake = args.metadata === "P2PHANDSHAKE";
  const host = args.flags["host"];
  await engine.init({
    metadata: args.metadata,
    name: args.flags["name"] ?? (handshake ? (host ?? "127.0.0.1") : fallbackName),
    ...(host === undefined ? {} : { host }),
  });
  for (const proto of (args.flags["transports"] ?? "shm,tcp").split(",")) await engine.installTransport(proto.trim() as Proto);
  return engine;
}

export function wholeNumber(text: string | undefined, name: string, otherwise: bigint): bigint {
  if (text === undefined) return otherwise;
  if (/^(0x[0-9a-fA-F]+|\d+)$/.test(text)) return BigInt(text);
  return fail("INVALID_REQUEST", `--${name}: expected a whole number of 0 or more, got ${text}`);
}

export function print(args: ToolArgs, value: object, text: string): void {
  process.stdout.write(
    args.json ? `${JSON.stringify(value, (_key, member: unknown) => (typeof member === "bigint" ? member.toString() : member))}\n` : `${text}\n`,
  );
}
