// Decides which servers `svc up` runs, and which of its flags each server gets.
import { resolve } from "node:path";
import { UsageError } from "../output/complain.ts";
import { type InUp, programs, programsHere, slugOf } from "./programs.ts";

export type ChosenServer = {
  readonly name: string;
  readonly argv: readonly string[];
  readonly portAdvice: string;
  /** The command that runs it; default: its name. */
  readonly command?: readonly string[];
  /** Its own home directory, if it differs from that of all. */
  readonly home?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** Set for a program that is not a server of svc's: it is ready when `/health` of this URL answers. */
  readonly program?: { readonly command: string; readonly args: readonly string[]; readonly url: string };
};

type Flag = { readonly name: string; readonly args: readonly string[] };

/** `only` undefined means all of them. */
export type Choice = { readonly without?: readonly string[] | undefined; readonly only?: readonly string[] | undefined };

/** Returns the available servers that the choice includes, each with its flags. */
export function chooseServers(flags: readonly string[], { without: left, only }: Choice): ChosenServer[] {
  const known = programs.filter(({ inUp }) => inUp !== undefined).map(({ name }) => slugOf(name));
  if (left !== undefined && only !== undefined) throw new UsageError("up takes --only or --without, not both");
  const names = (slug: string, list: readonly string[]) => list.some((name) => slug === name || slug === `store-${name}`);
  for (const [flag, list] of Object.entries({ without: left ?? [], only: only ?? [] }))
    for (const name of list)
      if (!known.some((slug) => names(slug, [name]))) throw new UsageError(`--${flag}: expected one of ${known.join(", ")}; got ${JSON.stringify(name)}`);
  const given = parse(flags);
  const without = only === undefined ? (left ?? []) : known.filter((slug) => !names(slug, only));
  const chosen = programsHere().flatMap(({ name, inUp }) => (inUp === undefined || names(slugOf(name), without) ? [] : [{ name, inUp }]));
  const leaves = only === undefined ? "--without leaves" : "--only leaves";
  if (chosen.length === 0) throw new UsageError("there is no server left to run: --without names all of them, or --only none");
  const stray = given.find((flag) => !chosen.some(({ name, inUp }) => isFor(flag, name, inUp)));
  if (stray?.name.includes(".") === true)
    throw new UsageError(`--${stray.name}: expected a setting of a server that runs; ${leaves} out ${without.join(", ")}, and no other one reads it`);
  if (stray !== undefined) throw new UsageError(`--${stray.name} is a flag of the node, which ${leaves} out; other servers take --section.key VALUE`);
  return chosen.map(({ name, inUp }) => ({
    name,
    argv: given.filter((flag) => isFor(flag, name, inUp)).flatMap((flag) => argsFor(flag, inUp)),
    portAdvice: `or move the server by ${inUp.ports}, or leave it out by --without ${slugOf(name)}`,
  }));
}

/** Makes paths in flags absolute, for a process in another directory. */
export function absolute(flags: readonly string[]): string[] {
  return parse(flags).flatMap(({ args }) => args);
}

/** A settings file is for all servers; a setting by its full name for the server that reads its section; anything else for the node. */
function isFor({ name }: Flag, server: string, { sections }: InUp): boolean {
  if (name === "config") return true;
  const [section] = name.includes(".") ? name.split(".", 1) : [undefined];
  if (sections !== undefined) return section !== undefined && sections.includes(section);
  return server === "node" && !programs.some(({ inUp }) => section !== undefined && inUp?.sections?.includes(section) === true);
}

function argsFor({ name, args }: Flag, { settingsFlag }: InUp): readonly string[] {
  return name === "config" && settingsFlag !== undefined ? args.map((word) => word.replace(/^--config/, settingsFlag)) : args;
}

/** Flags whose value is a path. */
const pathFlags: ReadonlySet<string> = new Set(["config", "tls-cert", "tls-key", "tls.cert_file", "tls.key_file"]);

/** Parses flags as the servers do: --name=VALUE, or --name and the next word, unless that begins with a dash. */
function parse(args: readonly string[]): Flag[] {
  const flags: Flag[] = [];
  for (let index = 0; index < args.length; index++) {
    const word = args[index] ?? "";
    const [, name = "", inline] = /^--?([^=]+)(?:=(.*))?$/s.exec(word) ?? [];
    if (name === "") throw new UsageError(`up takes flags of servers; got ${JSON.stringify(word)}`);
    const next = args[index + 1];
    const isSplit = inline === undefined && next !== undefined && !next.startsWith("-");
    if (isSplit) index++;
    const value = isSplit ? next : inline;
    if (pathFlags.has(name) && value !== undefined && value !== "") flags.push({ name, args: [`--${name}=${resolve(value)}`] });
    else flags.push({ name, args: isSplit ? [word, next] : [word] });
  }
  return flags;
}
