// Converts a Dockerfile to the steps of a template build; an instruction that has no equivalent is refused with the reason.

import { type Flag, type Instruction, instructionsOf, jsonForm, type Lookup, takeFlags, unquoted, wordsOf } from "./dockerfile-lines.ts";
import { fail } from "./failures.ts";

export type PlannedStep = {
  readonly type: "COPY" | "RUN" | "ENV" | "WORKDIR" | "USER";
  readonly args: string[];
  readonly force?: boolean;
  /** The hash of a COPY step's files, set once they are uploaded; see build-context.ts. */
  readonly filesHash?: string;
};

/** The body of POST /v2/templates/{id}/builds/{id}, except that COPY steps do not have their hashes yet. */
export type BuildPlan = {
  readonly fromImage: string;
  readonly steps: readonly PlannedStep[];
  readonly startCmd: string | undefined;
  /** Steps start as root in / unless the image specifies otherwise. */
  readonly dockerfile: true;
  /** Sentences about instructions that have no meaning here and were left out. */
  readonly notes: readonly string[];
};

export type PlanOptions = { readonly buildArgs?: Readonly<Record<string, string>> | undefined };

const withoutMeaning: Readonly<Record<string, string>> = {
  EXPOSE: "every port of a sandbox can be reached",
  LABEL: "templates have names and tags",
  MAINTAINER: "templates have names and tags",
  VOLUME: "all of a sandbox's files are its own",
  HEALTHCHECK: "a template has a ready command",
  STOPSIGNAL: "a sandbox ends at once",
};
const refusedInstructions: Readonly<Record<string, string>> = {
  SHELL: "commands are run by bash where the image has it, else by sh; call another shell in RUN",
  ONBUILD: "write the instruction where it shall run",
};
/** Build tools define these arguments without an ARG instruction. */
const predefinedArgs = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "FTP_PROXY", "ftp_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"];

/** @throws INVALID_REQUEST with the line's number. */
export function planFromDockerfile(text: string, { buildArgs = {} }: PlanOptions = {}): BuildPlan {
  const { escapeChar, instructions } = instructionsOf(text);
  const plan = { fromImage: "", steps: [] as PlannedStep[], notes: [] as string[] };
  const command: { entrypoint?: Words; cmd?: Words } = {};
  /** ARGs before FROM are visible only to FROM; after it each must be declared again. */
  const early = new Map<string, string>();
  const args = new Map<string, string>();
  const env = new Map<string, string>();
  for (const name of predefinedArgs) if (buildArgs[name] !== undefined) args.set(name, buildArgs[name]);
  const lookup: Lookup = (name) => env.get(name) ?? args.get(name);
  const full = (value: string) => unquoted(value, escapeChar, lookup);

  for (const instruction of instructions) {
    const { keyword, rest, line } = instruction;
    const refuse = (why: string): never => fail("INVALID_REQUEST", `Dockerfile line ${line}: ${keyword}: ${why}`);
    if (/(^|\s)<<-?["']?[A-Za-z_]/.test(rest) && ["RUN", "COPY", "ADD"].includes(keyword))
      refuse("here-documents are not taken; write the commands with && or COPY a file");
    if (plan.fromImage === "" && keyword !== "FROM" && keyword !== "ARG") refuse("FROM comes first");
    switch (keyword) {
      case "FROM":
        if (plan.fromImage !== "") refuse("a second stage; templates are built in one, so build the first as a template or an image of its own");
        plan.fromImage = fromImage(rest, (value) => unquoted(value, escapeChar, (name) => early.get(name) ?? ""), refuse);
        break;
      case "ARG":
        for (const word of wordsOf(rest, escapeChar)) {
          const [name = "", value] = split(word);
          if (!/^[A-Za-z_]\w*$/.test(name)) refuse(`'${name}' is not a valid name`);
          const known = plan.fromImage === "" ? early : args;
          const own = value === undefined ? undefined : literal(unquoted(value, escapeChar, plan.fromImage === "" ? (each) => early.get(each) : lookup));
          const given = buildArgs[name] ?? own ?? (known === args ? early.get(name) : undefined);
          if (given !== undefined) known.set(name, given);
        }
        break;
      case "ENV": {
        const pairs = envPairs(rest, escapeChar, refuse).map(([name, value]) => [name, full(value)] as const);
        plan.steps.push({ type: "ENV", args: pairs.flat() });
        // A value that refers to an unresolved variable of the image is unknown here.
        for (const [name, value] of pairs) {
          if (/(^|[^\\])\$/.test(value)) env.delete(name);
          else env.set(name, literal(value));
          args.delete(name);
        }
        break;
      }
      case "WORKDIR":
        plan.steps.push({ type: "WORKDIR", args: [full(rest.trim()) || refuse("expected a path")] });
        break;
      case "USER":
        plan.steps.push({ type: "USER", args: [full(rest.trim()) || refuse("expected a name or number")] });
        break;
      case "RUN":
        plan.steps.push({ type: "RUN", args: [runCommand(instruction, args, plan.notes, refuse)] });
        break;
      case "COPY":
      case "ADD":
        plan.steps.push(...copies(instruction, escapeChar, full, refuse));
        break;
      case "CMD":
        command.cmd = wordsIn(rest);
        break;
      case "ENTRYPOINT":
        command.entrypoint = wordsIn(rest);
        // A new ENTRYPOINT resets CMD, since an earlier CMD belongs to the previous entrypoint.
        delete command.cmd;
        break;
      default:
        if (withoutMeaning[keyword] !== undefined) plan.notes.push(`line ${line}: ${keyword} is left out: ${withoutMeaning[keyword]}`);
        else refuse(refusedInstructions[keyword] ?? "there is no such instruction");
    }
  }
  if (plan.fromImage === "") fail("INVALID_REQUEST", "the Dockerfile has no FROM");
  return { ...plan, dockerfile: true, startCmd: startCommand(command) };
}

type Words = { readonly shell: string } | { readonly exec: readonly string[] };

function wordsIn(rest: string): Words {
  const exec = jsonForm(rest);
  return exec === undefined ? { shell: rest.trim() } : { exec };
}

/** An ENTRYPOINT in shell form takes no arguments. */
function startCommand({ entrypoint, cmd }: { entrypoint?: Words; cmd?: Words }): string | undefined {
  const text = (words: Words | undefined) => (words === undefined ? "" : "shell" in words ? words.shell : words.exec.map(quoted).join(" "));
  const tail = cmd !== undefined && "shell" in cmd && entrypoint !== undefined ? `/bin/sh -c ${quoted(cmd.shell)}` : text(cmd);
  const both =
    entrypoint === undefined ? text(cmd) : "shell" in entrypoint ? entrypoint.shell : [text(entrypoint), tail].filter((part) => part !== "").join(" ");
  return both === "" ? undefined : both;
}

type Refuse = (why: string) => never;

function fromImage(rest: string, full: (value: string) => string, refuse: Refuse): string {
  const { flags, rest: words } = takeFlags(rest);
  if (flags.some(({ name }) => name !== "platform")) refuse(`--${flags[0]?.name} is not known`);
  const [image = "", as, , ...more] = words.trim().split(/\s+/);
  if (more.length > 0 || (as !== undefined && as.toUpperCase() !== "AS")) refuse("expected FROM IMAGE [AS NAME]");
  const name = literal(full(image));
  if (name === "" || name === "scratch") refuse(name === "" ? "the image's name is empty" : "a template needs a root with a shell; begin with an image");
  return name;
}

/** ARGs become variables of the command, but not of the template. */
function runCommand({ rest }: Instruction, args: ReadonlyMap<string, string>, notes: string[], refuse: Refuse): string {
  const { flags, rest: words } = takeFlags(rest);
  for (const { name, value } of flags) {
    if (name === "mount" && /(^|,)type=(cache|tmpfs)(,|$)/.test(value)) notes.push(`RUN --mount=${value} is left out: steps have a cache of their own`);
    else refuse(`--${name}=${value} is not offered`);
  }
  const command = jsonForm(words)?.map(quoted).join(" ") ?? words;
  if (command.trim() === "") refuse("the command is empty");
  const variables = [...args].map(([name, value]) => `${name}=${quoted(value)}`);
  return variables.length === 0 ? command : `export ${variables.join(" ")}; ${command}`;
}

function copies({ keyword, rest }: Instruction, escapeChar: string, full: (value: string) => string, refuse: Refuse): PlannedStep[] {
  const { flags, rest: text } = takeFlags(rest);
  const flag = (name: string) => flags.find((each: Flag) => each.name === name)?.value;
  if (flag("from") !== undefined) refuse("--from: files come from the context alone; templates are built in one stage");
  const unknown = flags.find(({ name }) => !["chown", "chmod", "link"].includes(name));
  if (unknown !== undefined) refuse(`--${unknown.name} is not offered`);
  const words = (jsonForm(text) ?? wordsOf(text, escapeChar)).map(full);
  // Escaped dollars stay escaped here, since the server replaces the image's own variables in the text.
  const target = words.pop();
  if (target === undefined || words.length === 0) refuse("expected a source and a destination");
  const folder = words.length > 1 && !String(target).endsWith("/") ? `${target}/` : String(target);
  const mode = flag("chmod") ?? "";
  if (!/^([0-7]{3,4})?$/.test(mode)) refuse(`--chmod=${mode}: expected an octal number`);
  return words.map(literal).map((source) => {
    if (/^[a-z+]+:\/\/|^git@/.test(source)) refuse(`'${source}': nothing is fetched; RUN curl or git clone instead`);
    if (keyword === "ADD" && /\.(tar|tgz|tbz2?|txz|tar\.\w+)$/.test(source)) refuse(`'${source}': archives are not unpacked; COPY it and RUN tar`);
    if (source.split("/").includes("..")) refuse(`'${source}' lies outside the context`);
    // As in the Dockerfile format, files belong to root unless --chown is given.
    return {
      type: "COPY" as const,
      args: [
        source.replace(/^\/+/, "") || ".",
        folder,
        flag("chown") === undefined ? "root" : literal(full(flag("chown") ?? "")),
        mode.padStart(mode === "" ? 0 : 4, "0"),
      ],
    };
  });
}

/** Parses ENV a=b c="d e", or the older form, where the value is the rest of the line. */
function envPairs(rest: string, escapeChar: string, refuse: Refuse): [string, string][] {
  const words = wordsOf(rest, escapeChar);
  const first = words[0] ?? refuse("expected NAME=VALUE");
  if (!first.includes("=")) {
    const value = rest.trim().slice(first.length).trim();
    return value === "" ? refuse("expected NAME=VALUE") : [checkedName(first, value, refuse)];
  }
  return words.map((word) => {
    const [name = "", value] = split(word);
    return value === undefined ? refuse(`'${word}' has no '='`) : checkedName(name, value, refuse);
  });
}

function checkedName(name: string, value: string, refuse: Refuse): [string, string] {
  return /^[A-Za-z_]\w*$/.test(name) ? [name, value] : refuse(`'${name}' is not the name of a variable`);
}

function split(word: string): [string, string | undefined] {
  const at = word.indexOf("=");
  return at === -1 ? [word, undefined] : [word.slice(0, at), word.slice(at + 1)];
}

/** Removes the escapes that `unquoted` adds for the server, where the text is used here. */
function literal(text: string): string {
  return text.replaceAll("\\$", "$");
}

export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
