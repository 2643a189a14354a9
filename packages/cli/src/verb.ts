// A verb of the command line: a commander command whose action gives the exit code.
import { hasBytes, shownText } from "@svc/contract/byte-text.ts";
import { inCapitals, usageLines } from "@svc/contract/help.ts";
import { type AddHelpTextContext, type AddHelpTextPosition, Command, type ErrorOptions, Help, InvalidArgumentError, Option } from "commander";
import { exactVariable } from "./raw-words.ts";

export class Verb extends Command {
  exitCode = 0;
  /** Of the root: the verb that runs, or whose command line is wrong. */
  current: Verb | undefined;
  #below = "";

  constructor(name?: string) {
    super(name);
    this.exitOverride().helpOption("-h, --help", "show this help");
    this.configureOutput({ outputError: (text, write) => write(text.replace(/^error: /, "svc: ")) });
    this.configureHelp({
      helpWidth: HELP_WIDTH,
      subcommandTerm: (command) => command.name(),
      optionTerm: ({ flags }) => inCapitals(flags),
      argumentTerm: (argument) => argument.name().toUpperCase(),
      commandUsage: (command) => inCapitals(Help.prototype.commandUsage.call(new Help(), command)),
    });
  }

  /** Its first example, from the text below its help; of `svc` itself, that of any verb. */
  get example(): string | undefined {
    return /^Examples?:\n {2}(\S.*)$/m.exec(this.#below)?.[1] ?? (this.parent === null ? "svc list" : undefined);
  }

  override addHelpText(position: AddHelpTextPosition, text: string): this;
  override addHelpText(position: AddHelpTextPosition, text: (context: AddHelpTextContext) => string): this;
  override addHelpText(position: AddHelpTextPosition, text: string | ((context: AddHelpTextContext) => string)): this {
    if (typeof text === "string") this.#below += text;
    return super.addHelpText(position, text as string);
  }

  /** Notes whose command line is wrong. */
  override error(message: string, options?: ErrorOptions): never {
    this.root.current = this;
    return super.error(message, options);
  }

  /** What to write instead, below what is wrong. */
  usageLines(): string {
    const path: string[] = [];
    for (let verb: Command | null = this as Command; verb !== null; verb = verb.parent) path.unshift(verb.name());
    const words = path.join(" ");
    return usageLines(`${words} ${inCapitals(this.usage())}`, this.example, `${words} --help`);
  }

  override createCommand(name?: string): Verb {
    return new Verb(name);
  }

  /** Adds a verb below this one. */
  verb(name: string, summary: string): Verb {
    return (this.command(name) as Verb).description(summary);
  }

  /** As `verb`, for one that talks to a server. */
  clientVerb(name: string, summary: string): Verb {
    return this.verb(name, summary).option("--url <url>", "the server (default: that of svc auth, else SVC_URL, else this machine's own)");
  }

  /** `action` gets the arguments, then the options. */
  run(action: (...words: never[]) => Promise<number>): this {
    return this.action(async (...words: unknown[]) => {
      this.root.current = this;
      this.root.exitCode = await (action as (...words: unknown[]) => Promise<number>)(...words);
    });
  }

  get root(): Verb {
    let verb: Command = this;
    while (verb.parent !== null) verb = verb.parent;
    return verb as Verb;
  }
}

/** As the programs that are no verbs have it (contract/src/help.ts). */
const HELP_WIDTH = 100;

export function outputOption(): Option {
  return new Option("-o, --output <format>", "how to print (default: a table)").choices(["table", "json"]);
}

/** `NAME=VALUE`, repeated for more. */
export function pairs(text: string, before: Record<string, string> | undefined): Record<string, string> {
  const at = text.indexOf("=");
  if (at < 1) throw new InvalidArgumentError("Expected NAME=VALUE.");
  return { ...before, [text.slice(0, at)]: text.slice(at + 1) };
}

/** As `environment`, for variables that go through the control plane: its JSON holds text alone. */
export function textEnvironment(text: string, before: Record<string, string> | undefined): Record<string, string> {
  const after = environment(text, before);
  if (Object.entries(after).flat().some(hasBytes))
    throw new InvalidArgumentError(`Expected text in UTF-8, got bytes that are none: ${shownText(text)}. svc exec -e takes any bytes.`);
  return after;
}

/** As `pairs`; a name alone takes the value that this process has. Both may hold bytes (byte-text.ts). */
export function environment(text: string, before: Record<string, string> | undefined): Record<string, string> {
  if (text.includes("=")) return pairs(text, before);
  const value = exactVariable(text);
  if (value === undefined) throw new InvalidArgumentError(`The variable ${text} is not set here: expected NAME=VALUE, or the name of one that is set.`);
  return { ...before, [text]: value };
}

export function seconds(text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new InvalidArgumentError("Expected whole seconds.");
  return Number(text);
}

/** Repeated, or joined by commas. */
export function several(text: string, before: string[] = []): string[] {
  return [...before, ...text.split(",").filter((part) => part !== "")];
}

export function count(max: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!/^\d{1,9}$/.test(text) || value < 1 || value > max) throw new InvalidArgumentError(`Expected a whole number from 1 to ${max}.`);
    return value;
  };
}
