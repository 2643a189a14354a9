// The `--help` of a server: its flags and settings, each with its default, its choices and the comment of config/default.toml.
import { z } from "zod";

/** Width in columns; longer text continues on the next line. */
const WIDTH = 100;
const INDENT = 6;

export type HelpSource = {
  readonly server: string;
  /** The first line is a sentence. Each further line is a flag of this server alone: the flag, two spaces, and what it does. */
  readonly about: string;
  readonly schema: z.ZodType;
  /** Maps each short flag to the setting that it stands for. */
  readonly flagNames: Readonly<Record<string, string>>;
  /** True if the server's --config names a file of another format; --settings then names the usual file. */
  readonly hasOwnFile: boolean;
};

type Settings = Readonly<Record<string, Readonly<Record<string, unknown>>>>;

/** `text` is config/default.toml; `defaults` holds its parsed values. */
export function configHelp({ server, about, schema, flagNames, hasOwnFile }: HelpSource, text: string, defaults: Settings): string {
  const comments = commentsOf(text);
  const shape = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" }) as Shape;
  const sections = Object.keys((schema as unknown as { shape: object }).shape);
  const defaultOf = (name: string) => {
    const [section = "", key = ""] = name.split(".");
    return defaults[section]?.[key];
  };
  const valueName = (name: string) => (typeof defaultOf(name) === "boolean" ? "[true|false]" : typeof defaultOf(name) === "number" ? "N" : "VALUE");
  const file = hasOwnFile ? "settings" : "config";
  const [sentence = "", ...ownFlags] = about.split("\n");
  const lines = [
    `Usage: ${usageOf(server)}`,
    "",
    ...filled(sentence, 0),
    "",
    "Options:",
    ...entry("--home DIR", "where it keeps its state (default: SVC_HOME, else by user)"),
    ...(hasOwnFile ? entry("--config FILE", "this server's own file, laid over the settings") : []),
    ...entry(`--${file} FILE`, "a file of settings (default: SVC_CONFIG_PATH), laid over config/default.toml"),
    ...ownFlags.flatMap((line) => entry(...(line.trim().split(/\s{2,}/, 2) as [string, string]))),
    ...Object.entries(flagNames).map(([flag, name]) => `  ${`--${flag} ${valueName(name)}`.padEnd(44)} same as --${name}`),
    ...entry("-h, --help", "show this help"),
    "",
    "Settings, each also SVC_SECTION_KEY in the environment or a key of a file's section; a flag beats both:",
    ...sections.flatMap((section) =>
      sharing(section, Object.keys(defaults[section] ?? {}), comments).flatMap(([comment, names]) => {
        const notes = names.map((name) => {
          const choices = choicesOf(property(shape, name));
          return [...(choices.length === 0 ? [] : [`one of ${choices.join(", ")}`]), `default: ${JSON.stringify(defaultOf(name))}`].join("; ");
        });
        const heads = names.map((name) => `--${name} ${valueName(name)}`);
        if (heads.length === 1) return entry(heads[0] as string, `${comment} (${notes[0]})`.trim());
        return [...heads.map((head, at) => `  ${head} (${notes[at]})`), ...filled(comment, INDENT)];
      }),
    ),
    "",
    "Examples:",
    `  ${exampleOf({ server, flagNames }, defaults)}`,
  ];
  return `${lines.join("\n")}\n`;
}

export const usageOf = (server: string): string => `svc ${server} [options] [--SETTING VALUE]...`;

/** Its first short flag, with what it is by default. */
export function exampleOf({ server, flagNames }: Pick<HelpSource, "server" | "flagNames">, defaults: Settings): string {
  const [flag, name = ""] = Object.entries(flagNames)[0] ?? [];
  const [section = "", key = ""] = name.split(".");
  return `svc ${server}${flag === undefined ? "" : ` --${flag} ${String(defaults[section]?.[key])}`}`;
}

type Shape = {
  readonly properties?: Readonly<Record<string, Shape>>;
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly Shape[];
  readonly const?: unknown;
};

function property(shape: Shape, name: string): Shape | undefined {
  const [section = "", key = ""] = name.split(".");
  return shape.properties?.[section]?.properties?.[key];
}

/** Groups adjacent settings that share one comment, so that the help prints the comment once. */
function sharing(section: string, keys: readonly string[], comments: ReadonlyMap<string, string>): (readonly [comment: string, names: string[]])[] {
  const groups: [string, string[]][] = [];
  for (const key of keys) {
    const comment = comments.get(`${section}.${key}`) ?? "";
    const last = groups.at(-1);
    if (last !== undefined && last[0] === comment && comment !== "") last[1].push(`${section}.${key}`);
    else groups.push([comment, [`${section}.${key}`]]);
  }
  return groups;
}

function choicesOf(shape: Shape | undefined): string[] {
  if (shape?.enum !== undefined) return shape.enum.map(String);
  const constants = (shape?.anyOf ?? []).flatMap((each) => (each.const === undefined ? choicesOf(each) : [String(each.const)]));
  return constants.length === (shape?.anyOf?.length ?? 0) ? constants : [];
}

function entry(head: string, says: string): string[] {
  return [`  ${head}`, ...filled(says, INDENT)];
}

function filled(text: string, indent: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(/\s+/)) {
    if (line !== "" && indent + line.length + 1 + word.length > WIDTH) {
      lines.push(line);
      line = "";
    }
    line = line === "" ? word : `${line} ${word}`;
  }
  return [...lines, line].map((each) => " ".repeat(indent) + each);
}

/** Maps each setting to the comment above it in the file; adjacent settings may share one comment. */
function commentsOf(text: string): Map<string, string> {
  const comments = new Map<string, string>();
  let section = "";
  let comment: string[] = [];
  let isOpen = false;
  for (const line of text.split("\n")) {
    const header = /^\[([\w.]+)\]/.exec(line)?.[1];
    const key = /^(\w+)\s*=/.exec(line)?.[1];
    if (line.startsWith("#")) {
      if (!isOpen) comment = [];
      isOpen = true;
      comment.push(line.replace(/^#\s?/, ""));
    } else if (header !== undefined) {
      section = header;
      comment = [];
      isOpen = false;
    } else if (key !== undefined) {
      comments.set(`${section}.${key}`, comment.join(" "));
      isOpen = false;
    } else if (line === "") {
      comment = [];
      isOpen = false;
    }
  }
  return comments;
}
