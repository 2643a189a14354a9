// A verb of the command line: a commander command whose action returns the exit code.
import { hasBytes, shownText } from "@svc/contract/byte-text.ts";
import { inCapitals, usageLines } from "@svc/contract/help.ts";
import { type AddHelpTextContext, type AddHelpTextPosition, Command, type ErrorOptions, Help, InvalidArgumentError, Option } from "commander";
import type { EgressProxyOption, HeaderRules } from "../sandbox/network.ts";
import { exactVariable } from "../shell/raw-arguments.ts";

export class Verb extends Command {
  exitCode = 0;
  /** On the root: the verb that runs, or whose command line is wrong. */
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

  /** Its first example, from the text below its help; for `svc` itself, an example of any verb. */
  get example(): string | undefined {
    return /^Examples?:\n {2}(\S.*)$/m.exec(this.#below)?.[1] ?? (this.parent === null ? "svc list" : undefined);
  }

  override addHelpText(position: AddHelpTextPosition, text: string): this;
  override addHelpText(position: AddHelpTextPosition, text: (context: AddHelpTextContext) => string): this;
  override addHelpText(position: AddHelpTextPosition, text: string | ((context: AddHelpTextContext) => string)): this {
    if (typeof text === "string") this.#below += text;
    return super.addHelpText(position, text as string);
  }

  /** Records which verb's command line is wrong. */
  override error(message: string, options?: ErrorOptions): never {
    this.root.current = this;
    return super.error(message, options);
  }

  /** The usage and an example, printed below the error. */
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

  /** Same as `verb`, for verbs that talk to a server. */
  clientVerb(name: string, summary: string): Verb {
    return this.verb(name, summary).option("--url <url>", "the server (default: that of svc auth, else SVC_URL, else this machine's own)");
  }

  /** `action` gets the arguments, then the options. */
  run(action: (...args: never[]) => Promise<number>): this {
    return this.action(async (...args: unknown[]) => {
      this.root.current = this;
      this.root.exitCode = await (action as (...args: unknown[]) => Promise<number>)(...args);
    });
  }

  get root(): Verb {
    let verb: Command = this;
    while (verb.parent !== null) verb = verb.parent;
    return verb as Verb;
  }
}

/** The same width as in the help of programs that are not verbs (contract/src/help.ts). */
const HELP_WIDTH = 100;

export function outputOption(): Option {
  return new Option("-o, --output <format>", "how to print (default: a table)").choices(["table", "json"]);
}

/** Parses `NAME=VALUE`; the option may be repeated. */
export function pairs(text: string, before: Record<string, string> | undefined): Record<string, string> {
  const at = text.indexOf("=");
  if (at < 1) throw new InvalidArgumentError("Expected NAME=VALUE.");
  return { ...before, [text.slice(0, at)]: text.slice(at + 1) };
}

/** Same as `environment`, for variables that pass through the control plane, whose JSON can contain only text. */
export function textEnvironment(text: string, before: Record<string, string> | undefined): Record<string, string> {
  const after = environment(text, before);
  if (Object.entries(after).flat().some(hasBytes))
    throw new InvalidArgumentError(`Expected text in UTF-8, got bytes that are none: ${shownText(text)}. svc exec -e takes any bytes.`);
  return after;
}

/** Same as `pairs`, but a name alone takes its value from this process. Both may contain bytes (byte-text.ts). */
export function environment(text: string, before: Record<string, string> | undefined): Record<string, string> {
  if (text.includes("=")) return pairs(text, before);
  const value = exactVariable(text);
  if (value === undefined) throw new InvalidArgumentError(`The variable ${text} is not set here: expected NAME=VALUE, or the name of one that is set.`);
  return { ...before, [text]: value };
}

/** Parses VOLUME:PATH; the option may be repeated. */
export function volumeMount(text: string, before: { name: string; path: string }[] = []): { name: string; path: string }[] {
  const [, name = "", path = ""] = /^([a-zA-Z0-9_-]+):(\/.+)$/.exec(text) ?? [];
  if (name === "") throw new InvalidArgumentError("Expected VOLUME:PATH with an absolute path below /, such as data:/data.");
  return [...before, { name, path }];
}

export function seconds(text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new InvalidArgumentError("Expected whole seconds.");
  return Number(text);
}

/** The option may be repeated, or contain several values joined by commas. */
export function several(text: string, before: string[] = []): string[] {
  return [...before, ...text.split(",").filter((part) => part !== "")];
}

/** Parses `HOST HEADER: VALUE`; the option may be repeated. */
export function headerRule(text: string, before: HeaderRules = {}): HeaderRules {
  const [, host = "", name = "", value = ""] = /^(\S+)\s+([^\s:]+):\s*(.*)$/.exec(text) ?? [];
  if (host === "") throw new InvalidArgumentError("Expected 'HOST HEADER: VALUE', such as 'api.example.com X-Key: abc'.");
  return { ...before, [host]: [...(before[host] ?? []), { transform: { headers: { [name]: value } } }] };
}

/** The variable with the password of --egress-proxy, which other users of this machine must not read on a command line. */
export const PROXY_PASSWORD = "SVC_EGRESS_PROXY_PASSWORD";

export function egressProxy(text: string): EgressProxyOption {
  const at = text.lastIndexOf("@");
  const username = at < 0 ? undefined : text.slice(0, at);
  if (username?.includes(":")) throw new InvalidArgumentError(`Expected [USER@]HOST:PORT; put the password into the variable ${PROXY_PASSWORD}.`);
  const password = process.env[PROXY_PASSWORD];
  return {
    address: text.slice(at + 1),
    ...(username === undefined ? {} : { username }),
    ...(username === undefined || password === undefined || password === "" ? {} : { password }),
  };
}

/** The option may be repeated; commas belong to its value. */
export function collected(text: string, before: string[] = []): string[] {
  return [...before, text];
}

export function count(max: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!/^\d{1,9}$/.test(text) || value < 1 || value > max) throw new InvalidArgumentError(`Expected a whole number from 1 to ${max}.`);
    return value;
  };
}
