// Settings of a server: flags beat environment beats the chosen file beats config/default.toml, which names them all.
import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { fail } from "@svc/contract/failures.ts";
import { parse as parseToml } from "smol-toml";
import type { z } from "zod";

const DEFAULT_FILE = fileURLToPath(new URL("../../../config/default.toml", import.meta.url));

type Value = string | number | boolean | string[];
type Sections = Record<string, Record<string, Value>>;
type Environment = Readonly<Record<string, string | undefined>>;

/** Short flags of a server, each a spelling of a setting: { listen: "node.listen" }. */
export type FlagNames = Readonly<Record<string, string>>;

export type Loaded<S> = { settings: S; home: string; configPath: string };

export type ConfigSource<T extends z.ZodType> = {
  readonly server: string;
  /** Of the sections that this server reads. */
  readonly schema: T;
  readonly flagNames: FlagNames;
  readonly argv: readonly string[];
  readonly env?: Environment;
  readonly about: string;
};

/** `$SVC_HOME`, else /var/lib/svc for root, else ~/.local/share/svc. */
export function homeDirectory(env: Environment = process.env): string {
  const named = env["SVC_HOME"];
  if (named !== undefined && named !== "") return resolve(named);
  return process.getuid?.() === 0 ? "/var/lib/svc" : join(homedir(), ".local/share/svc");
}

/**
 * The settings of one server, or "help" after its flags were printed.
 * @throws SETTING_INVALID with a sentence that names the setting and its source.
 */
export function loadConfig<T extends z.ZodType>(source: ConfigSource<T>): Loaded<z.output<T>> | "help" {
  const env = source.env ?? process.env;
  const defaults = readToml(DEFAULT_FILE);
  const flags = parseFlags(source, defaults);
  if (flags === "help") {
    process.stdout.write(helpText(source, defaults));
    return "help";
  }
  const configPath = flags.config ?? nonEmpty(env["SVC_CONFIG_PATH"]) ?? DEFAULT_FILE;
  const settings = structuredClone(defaults);
  const origin = new Map<string, string>();
  if (configPath !== DEFAULT_FILE) overlayFile(settings, configPath, origin);
  // Every server of a machine gets the same flags and environment: what another one reads is not this one's to judge.
  const read = sectionsOf(source.schema);
  for (const [section, entries] of Object.entries(settings)) {
    if (!read.includes(section)) continue;
    for (const [key, current] of Object.entries(entries)) {
      const name = `${section}.${key}`;
      const variable = `SVC_${section}_${key}`.toUpperCase();
      // A variable that is set but empty says nothing.
      const fromEnv = nonEmpty(env[variable]);
      if (fromEnv !== undefined) {
        entries[key] = convert(fromEnv, current, `environment variable ${variable}`, key);
        origin.set(name, `environment variable ${variable}`);
      }
      const fromFlag = flags.values.get(name);
      if (fromFlag !== undefined) {
        entries[key] = convert(fromFlag.text, current, `flag --${fromFlag.flag}`, key);
        origin.set(name, `flag --${fromFlag.flag}`);
      }
    }
  }
  const parsed = source.schema.safeParse(settings);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    const name = issue?.path.slice(0, 2).join(".") ?? "?";
    const [section = "", key = ""] = name.split(".");
    fail("SETTING_INVALID", `setting ${name} (${origin.get(name) ?? configPath}): found ${JSON.stringify(settings[section]?.[key])}: ${issue?.message}`);
  }
  return { settings: parsed.data, home: flags.home === undefined ? homeDirectory(env) : resolve(flags.home), configPath };
}

type Flags = { home: string | undefined; config: string | undefined; values: Map<string, { flag: string; text: string }> };

function parseFlags<T extends z.ZodType>(source: ConfigSource<T>, defaults: Sections): Flags | "help" {
  const options: Record<string, { type: "string" | "boolean"; short?: string }> = {
    home: { type: "string" },
    config: { type: "string" },
    help: { type: "boolean", short: "h" },
  };
  const names = new Map<string, string>();
  for (const [section, entries] of Object.entries(defaults)) for (const key of Object.keys(entries)) names.set(`${section}.${key}`, `${section}.${key}`);
  for (const [flag, name] of Object.entries(source.flagNames)) names.set(flag, name);
  for (const flag of names.keys()) options[flag] = { type: "string" };
  let values: Record<string, string | boolean | undefined>;
  try {
    ({ values } = parseArgs({ args: withBooleans(source.argv, names, defaults), options, allowPositionals: false }));
  } catch (error) {
    return fail("SETTING_INVALID", `svc ${source.server}: ${(error as Error).message}; \`svc ${source.server} --help\` lists the flags`);
  }
  if (values["help"] === true) return "help";
  const settings = new Map<string, { flag: string; text: string }>();
  for (const [flag, name] of names) {
    const text = values[flag];
    if (typeof text === "string") settings.set(name, { flag, text });
  }
  return { home: values["home"] as string | undefined, config: values["config"] as string | undefined, values: settings };
}

/** A boolean flag may stand without a value: it means true. */
function withBooleans(argv: readonly string[], names: ReadonlyMap<string, string>, defaults: Sections): string[] {
  return argv.map((word, at) => {
    const [section = "", key = ""] = (word.startsWith("--") ? (names.get(word.slice(2)) ?? "") : "").split(".");
    const isBoolean = typeof defaults[section]?.[key] === "boolean";
    return isBoolean && !/^(true|false|0|1)$/.test(argv[at + 1] ?? "") ? `${word}=true` : word;
  });
}

function overlayFile(settings: Sections, path: string, origin: Map<string, string>): void {
  for (const [section, entries] of Object.entries(readToml(path))) {
    const known = settings[section] ?? fail("SETTING_INVALID", `${path}: there is no section [${section}]; config/default.toml lists them all`);
    for (const [key, value] of Object.entries(entries)) {
      if (known[key] === undefined) fail("SETTING_INVALID", `${path}: there is no setting ${section}.${key}; config/default.toml lists them all`);
      known[key] = value;
      origin.set(`${section}.${key}`, path);
    }
  }
}

function readToml(path: string): Sections {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    return fail("SETTING_INVALID", `the configuration file ${path} cannot be read: ${(error as Error).message}`, { cause: error });
  }
  try {
    return parseToml(text) as Sections;
  } catch (error) {
    return fail("SETTING_INVALID", `${path} is no TOML: ${(error as Error).message}`, { cause: error });
  }
}

const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

/** `10s` or `500ms` in the unit that the setting's name ends with; undefined for anything else. */
function duration(text: string, key: string): number | undefined {
  const [, count, unit = ""] = /^(\d+(?:\.\d+)?)(ms|s|m|h)$/.exec(text) ?? [];
  const ownMs = key.endsWith("_ms") ? 1 : key.endsWith("_seconds") ? 1000 : undefined;
  return count === undefined || ownMs === undefined ? undefined : (Number(count) * (UNIT_MS[unit] ?? 1)) / ownMs;
}

/** Text from a flag or a variable becomes what the default is: number (durations also as 10s), boolean, list (comma) or text. */
function convert(text: string, like: Value, where: string, key: string): Value {
  if (Array.isArray(like))
    return text
      .split(",")
      .map((part) => part.trim())
      .filter((part) => part !== "");
  if (typeof like === "number") {
    const value = duration(text, key) ?? Number(text);
    return text.trim() !== "" && Number.isFinite(value) ? value : fail("SETTING_INVALID", `${where}: found ${JSON.stringify(text)}, asked for a number`);
  }
  if (typeof like === "boolean") {
    if (text === "true" || text === "1") return true;
    if (text === "false" || text === "0") return false;
    return fail("SETTING_INVALID", `${where}: found ${JSON.stringify(text)}, asked for true or false`);
  }
  return text;
}

function nonEmpty(text: string | undefined): string | undefined {
  return text === undefined || text === "" ? undefined : text;
}

function sectionsOf(schema: z.ZodType): string[] {
  return Object.keys((schema as unknown as { shape: object }).shape);
}

function helpText<T extends z.ZodType>(source: ConfigSource<T>, defaults: Sections): string {
  const short = Object.entries(source.flagNames).map(([flag, name]) => `${`  --${flag} VALUE`.padEnd(34)}setting ${name}`);
  const long = sectionsOf(source.schema).flatMap((section) =>
    Object.entries(defaults[section] ?? {}).map(([key, value]) => `${`  --${section}.${key} VALUE`.padEnd(44)}default ${JSON.stringify(value)}`),
  );
  return [
    `svc ${source.server}: ${source.about}`,
    "",
    "  --home DIR                      where it keeps state (default $SVC_HOME)",
    "  --config FILE                   settings; beats $SVC_CONFIG_PATH, which beats config/default.toml",
    ...short,
    "",
    "Every setting, also as SVC_SECTION_KEY in the environment; config/default.toml explains them:",
    ...long,
    "",
  ].join("\n");
}
