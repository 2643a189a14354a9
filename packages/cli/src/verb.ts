// A verb of the command line: a commander command whose action gives the exit code.
import { Command, InvalidArgumentError, Option } from "commander";

export class Verb extends Command {
  exitCode = 0;

  constructor(name?: string) {
    super(name);
    this.exitOverride().helpOption("-h, --help", "show this help");
    this.configureOutput({ outputError: (text, write) => write(text.replace(/^error: /, "svc: ")) });
    this.configureHelp({ subcommandTerm: (command) => command.name() });
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
      this.root.exitCode = await (action as (...words: unknown[]) => Promise<number>)(...words);
    });
  }

  get root(): Verb {
    let verb: Command = this;
    while (verb.parent !== null) verb = verb.parent;
    return verb as Verb;
  }
}

export function outputOption(): Option {
  return new Option("-o, --output <format>", "how to print (default: a table)").choices(["table", "json"]);
}

/** `NAME=VALUE`, repeated for more. */
export function pairs(text: string, before: Record<string, string> | undefined): Record<string, string> {
  const at = text.indexOf("=");
  if (at < 1) throw new InvalidArgumentError("Expected NAME=VALUE.");
  return { ...before, [text.slice(0, at)]: text.slice(at + 1) };
}

/** As `pairs`; a name alone takes the value that this process has. */
export function environment(text: string, before: Record<string, string> | undefined): Record<string, string> {
  if (text.includes("=")) return pairs(text, before);
  const value = process.env[text];
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
