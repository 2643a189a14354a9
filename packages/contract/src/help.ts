// One form of help for every command and program: usage, description, options and commands in columns, examples.

/** The text of the left column, and its explanation. */
export type HelpEntry = readonly [head: string, does: string];

export type HelpPage = {
  /** The forms of the command line. */
  readonly usage: readonly string[];
  readonly about: string;
  readonly commands?: readonly HelpEntry[];
  readonly options: readonly HelpEntry[];
  /** Paragraphs below the options. */
  readonly more?: string;
  readonly examples: readonly string[];
};

const WIDTH = 100;
/** The explanation of a longer head is printed on the next line. */
const MAX_HEAD = 36;
const HELP: HelpEntry = ["-h, --help", "show this help"];

export function renderHelp({ usage, about, commands = [], options, more, examples }: HelpPage): string {
  const all = [...options, HELP];
  const width = Math.min(MAX_HEAD, Math.max(...[...commands, ...all].map(([head]) => head.length)));
  const [first = "", ...others] = usage;
  return [
    `Usage: ${first}`,
    ...others.map((form) => `       ${form}`),
    "",
    about,
    "",
    "Options:",
    ...all.flatMap((entry) => columns(entry, width)),
    ...(commands.length === 0 ? [] : ["", "Commands:", ...commands.flatMap((entry) => columns(entry, width))]),
    ...(more === undefined ? [] : ["", more]),
    "",
    "Examples:",
    ...examples.map((example) => `  ${example}`),
    "",
  ].join("\n");
}

/** Printed after the sentence that says what is wrong with a command line. */
export function usageLines(usage: string, example: string | undefined, help: string): string {
  return `\nUsage: ${usage}\n${example === undefined ? "" : `Example: ${example}\n`}See ${help}.\n`;
}

/** The same as usageLines, for a page. */
export function usageOfPage({ usage, examples }: HelpPage, help: string): string {
  return usageLines(usage.join("\n       "), examples[0], help);
}

/** Writes placeholders in capitals, as error messages and guides do: <id> becomes ID, [local] becomes [LOCAL]. */
export function inCapitals(text: string): string {
  return text.replace(/<([^<>]+)>|\[(?!options\])([^[\]<>]+(?:\[[^\]]*\])?[^[\]<>]*)\]/g, (_, needed: string | undefined, optional: string) =>
    needed === undefined ? `[${optional.toUpperCase()}]` : needed.toUpperCase(),
  );
}

function columns([head, does]: HelpEntry, width: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of does.split(/\s+/)) {
    if (line !== "" && width + 4 + line.length + 1 + word.length > WIDTH) {
      lines.push(line);
      line = "";
    }
    line = line === "" ? word : `${line} ${word}`;
  }
  const [first, ...rest] = [...lines, line];
  const below = " ".repeat(width + 4);
  const start = head.length > width ? [`  ${head}`, `${below}${first}`] : [`  ${head.padEnd(width)}  ${first}`];
  return [...start, ...rest.map((text) => `${below}${text}`)];
}
