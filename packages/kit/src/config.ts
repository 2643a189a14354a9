// Settings of a server: a flag beats the environment, which beats the chosen file, which beats config/default.toml (it lists them all).
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { Failure, fail } from "@svc/contract/failures.ts";
import { usageLines } from "@svc/contract/help.ts";
import { homeAt, homeDirectory } from "@svc/contract/home.ts";
import "@svc/contract/issues.ts";
import { parse as parseToml } from "smol-toml";
import type { z } from "zod";
import { configHelp, exampleOf, usageOf } from "./config-help.ts";
import { refuseMistyped } from "./mistyped.ts";
import { refuseRenamed, renamedHint } from "./renamed.ts";

const DEFAULT_FILE = fileURLToPath(new URL("../../../config/default.toml", import.meta.url));

type Value = string | number | boolean | string[];
export type Sections = Record<string, Record<string, Value>>;
type Environment = Readonly<Record<string, string | undefined>>;

/** A server's short flags, each mapped to its setting: { listen: "node.listen" }. */
export type FlagNames = Readonly<Record<string, string>>;

export type Loaded<S> = { settings: S; home: string; configPath: string };

export type ConfigSource<T extends z.ZodType> = {
  readonly server: string;
  /** The schema covers only the sections that this server reads. */
  readonly schema: T;
  readonly flagNames: FlagNames;
  readonly argv: readonly string[];
  readonly env?: Environment;
  readonly about: string;
  /** A server whose --config names a file of another format converts it to settings here; --settings then names the usual settings file. */
  readonly ownFile?: (path: string) => Sections;
};

/**
 * Loads the settings of one server, or prints its flags and returns "help".
 * @throws SETTING_INVALID with a sentence that names the setting and its source.
 */
export function loadConfig<T extends z.ZodType>(source: ConfigSource<T>): Loaded<z.output<T>> | "help" {
  const defaults = readToml(DEFAULT_FILE);
  try {
    return loaded(source, defaults);
  } catch (error) {
    if (!(error instanceof Failure) || exitCodeOf(error) !== wrongFlags.details.exitCode) throw error;
    const usage = usageLines(usageOf(source.server), exampleOf(source, defaults), `svc ${source.server} --help`);
    throw new Failure(error.name, error.message, { cause: error, details: { ...error.details, usage } });
  }
}

function loaded<T extends z.ZodType>(source: ConfigSource<T>, defaults: Sections): Loaded<z.output<T>> | "help" {
  const env = source.env ?? process.env;
  const flags = parseFlags(source, defaults);
  if (flags === "help") {
    process.stdout.write(configHelp({ ...source, hasOwnFile: source.ownFile !== undefined }, readFileSync(DEFAULT_FILE, "utf8"), defaults));
    return "help";
  }
  const settingsPath = (source.ownFile === undefined ? flags.config : flags.settings) ?? nonEmpty(env["SVC_CONFIG_PATH"]) ?? DEFAULT_FILE;
  const settings = structuredClone(defaults);
  const origin = new Map<string, string>();
  if (settingsPath !== DEFAULT_FILE) overlay(settings, readToml(settingsPath), settingsPath, origin);
  const ownPath = source.ownFile === undefined ? undefined : flags.config;
  if (source.ownFile !== undefined && ownPath !== undefined) overlay(settings, source.ownFile(ownPath), ownPath, origin);
  const configPath = ownPath ?? settingsPath;
  // All servers of a machine share their flags and environment, so settings of other servers are not checked here.
  const read = sectionsOf(source.schema);
  refuseRenamed(env, variableOf);
  refuseMistyped(
    env,
    read.flatMap((section) => Object.keys(defaults[section] ?? {}).map((key) => variableOf(section, key))),
  );
  for (const [section, entries] of Object.entries(settings)) {
    if (!read.includes(section)) continue;
    for (const [key, overlaid] of Object.entries(entries)) {
      // A server's own file may hold a number where the settings hold text.
      const current = defaults[section]?.[key] ?? overlaid;
      const name = `${section}.${key}`;
      const variable = variableOf(section, key);
      // An empty variable counts as unset.
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
    const where = origin.get(name) ?? configPath;
    fail("SETTING_INVALID", `setting ${name} (${where}): got ${JSON.stringify(settings[section]?.[key])}: ${issue?.message}`, causedBy(where));
  }
  return { settings: parsed.data, home: flags.home === undefined ? homeDirectory(env) : homeAt(flags.home), configPath };
}

/** Marks a failure that a flag caused, as opposed to a variable or a file. */
const wrongFlags = { details: { exitCode: 2 } };
const causedBy = (where: string) => (where.startsWith("flag ") ? wrongFlags : {});

/** The exit code of a failed start: 2 for a wrong command line, 1 for any other failure. */
export const exitCodeOf = ({ details }: Failure): number => (details["exitCode"] === wrongFlags.details.exitCode ? wrongFlags.details.exitCode : 1);

/** Prints why a server's command failed, with its usage if the command line is wrong, and returns the exit code. */
export function complained(server: string, error: Failure): number {
  const { usage } = error.details;
  process.stderr.write(`svc ${server}: ${error.message}\n${typeof usage === "string" ? usage : ""}`);
  return exitCodeOf(error);
}

type Flags = { home: string | undefined; config: string | undefined; settings: string | undefined; values: Map<string, { flag: string; text: string }> };

function parseFlags<T extends z.ZodType>(source: ConfigSource<T>, defaults: Sections): Flags | "help" {
  const options: Record<string, { type: "string" | "boolean"; short?: string }> = {
    home: { type: "string" },
    config: { type: "string" },
    ...(source.ownFile === undefined ? {} : { settings: { type: "string" } }),
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
    return fail("SETTING_INVALID", `${wrongFlag(error as NodeJS.ErrnoException, defaults)}; svc ${source.server} --help lists the flags`, {
      cause: error,
      ...wrongFlags,
    });
  }
  if (values["help"] === true) return "help";
  const settings = new Map<string, { flag: string; text: string }>();
  for (const [flag, name] of names) {
    const text = values[flag];
    if (typeof text !== "string") continue;
    const other = settings.get(name);
    if (other !== undefined) fail("SETTING_INVALID", `--${other.flag} and --${flag} are the same setting: give one of them`, wrongFlags);
    settings.set(name, { flag, text });
  }
  const named = (flag: string) => values[flag] as string | undefined;
  // An unset variable in a shell's `--home=$X` would otherwise make the current folder the home.
  if (named("home") === "") fail("SETTING_INVALID", "--home: expected a folder, got an empty text", wrongFlags);
  return { home: named("home"), config: named("config"), settings: named("settings"), values: settings };
}

/** Explains which flag is wrong and which ones exist. */
function wrongFlag({ code, message }: NodeJS.ErrnoException, defaults: Sections): string {
  const name = /'-{1,2}([^' ]+)/.exec(message)?.[1] ?? "";
  if (code === "ERR_PARSE_ARGS_UNEXPECTED_POSITIONAL") return message.replace(/\. .*$/s, "");
  if (code !== "ERR_PARSE_ARGS_UNKNOWN_OPTION") return `--${name}: expected a value, got none, or one that begins with a dash, which needs --${name}=VALUE`;
  const [section = "", key] = name.split(".");
  if (key === undefined) return `--${name}: there is no such flag`;
  const renamed = renamedHint(name);
  if (renamed !== undefined) return `--${name}: ${renamed}`;
  const there = Object.keys(defaults[section] ?? {});
  return there.length === 0
    ? `--${name}: there is no section [${section}] of settings`
    : `--${name}: there is no such setting; [${section}] has ${there.join(", ")}`;
}

/**
 * Rewrites flags for parseArgs: a boolean flag without a value means true, and `section.key=value` needs no dashes, as in the
 * specification.
 */
function withBooleans(argv: readonly string[], names: ReadonlyMap<string, string>, defaults: Sections): string[] {
  return argv.map((word, at) => {
    if (!word.startsWith("-") && names.has(/^([^=]+)=/.exec(word)?.[1] ?? "")) return `--${word}`;
    const [section = "", key = ""] = (word.startsWith("--") ? (names.get(word.slice(2)) ?? "") : "").split(".");
    const isBoolean = typeof defaults[section]?.[key] === "boolean";
    return isBoolean && !/^(true|false|0|1)$/.test(argv[at + 1] ?? "") ? `${word}=true` : word;
  });
}

function overlay(settings: Sections, file: Sections, path: string, origin: Map<string, string>): void {
  for (const [section, entries] of Object.entries(file)) {
    if (typeof entries !== "object" || entries === null || Array.isArray(entries))
      fail("SETTING_INVALID", `${path}: setting ${section}: expected it in a section, as in [sandbox]; config/default.toml lists them all`);
    const known = settings[section] ?? fail("SETTING_INVALID", `${path}: there is no section [${section}]; config/default.toml lists them all`);
    for (const [key, value] of Object.entries(entries)) {
      const name = `${section}.${key}`;
      if (known[key] === undefined)
        fail("SETTING_INVALID", `${path}: ${renamedHint(name) ?? `there is no setting ${name}`}; config/default.toml lists them all`);
      known[key] = value;
      origin.set(name, path);
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
    return fail("SETTING_INVALID", `${path} is not valid TOML: ${(error as Error).message}`, { cause: error });
  }
}

const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

const unitMsOf = (key: string) => (key.endsWith("_ms") ? 1 : key.endsWith("_seconds") ? 1000 : undefined);
const isDuration = (key: string) => unitMsOf(key) !== undefined;

/** Converts `10s` or `500ms` to the unit that ends the setting's name; returns undefined for any other text. */
function duration(text: string, key: string): number | undefined {
  const [, count, unit = ""] = /^(\d+(?:\.\d+)?)(ms|s|m|h)$/.exec(text) ?? [];
  const ownMs = unitMsOf(key);
  return count === undefined || ownMs === undefined ? undefined : (Number(count) * (UNIT_MS[unit] ?? 1)) / ownMs;
}

/**
 * Converts text from a flag or a variable to the type of the default: number (durations also as 10s), boolean, list (with commas, or as in
 * the file) or text.
 */
function convert(text: string, like: Value, where: string, key: string): Value {
  if (Array.isArray(like)) return listOf(text, where);
  if (typeof like === "number") {
    const value = duration(text, key) ?? Number(text);
    return text.trim() !== "" && Number.isFinite(value)
      ? value
      : fail(
          "SETTING_INVALID",
          `${where}: expected ${isDuration(key) ? "a number, or a duration such as 10s or 500ms" : "a number"}, got ${JSON.stringify(text)}`,
          causedBy(where),
        );
  }
  if (typeof like === "boolean") {
    if (text === "true" || text === "1") return true;
    if (text === "false" || text === "0") return false;
    return fail("SETTING_INVALID", `${where}: expected true or false, got ${JSON.stringify(text)}`, causedBy(where));
  }
  return text;
}

function listOf(text: string, where: string): string[] {
  if (!text.trim().startsWith("[")) {
    return text
      .split(",")
      .map((part) => part.trim())
      .filter((part) => part !== "");
  }
  try {
    const { list } = parseToml(`list = ${text.trim()}`) as { list: unknown };
    if (Array.isArray(list) && list.every((part) => typeof part === "string")) return list;
  } catch {
    // A text that is not valid TOML gets the failure below.
  }
  return fail("SETTING_INVALID", `${where}: expected a list such as a,b or ["a", "b"], got ${JSON.stringify(text)}`, causedBy(where));
}

const variableOf = (section: string, key: string): string => `SVC_${section}_${key}`.toUpperCase();

function nonEmpty(text: string | undefined): string | undefined {
  return text === undefined || text === "" ? undefined : text;
}

function sectionsOf(schema: z.ZodType): string[] {
  return Object.keys((schema as unknown as { shape: object }).shape);
}
