// Which servers `svc up` runs, and which of the flags given to it each of them gets.
import { resolve } from "node:path";
import { UsageError } from "./complain.ts";
import { programs, programsHere } from "./programs.ts";

export type ChosenServer = { readonly name: string; readonly argv: readonly string[]; readonly portAdvice: string };

type Flag = { readonly name: string; readonly words: readonly string[] };

/** Those that the tree has and `without` does not name, each with its flags. */
export function chooseServers(flags: readonly string[], without: readonly string[]): ChosenServer[] {
  const known = programs.filter(({ inUp }) => inUp === true).map(({ name }) => name);
  for (const name of without) if (!known.includes(name)) throw new UsageError(`--without wants one of ${known.join(", ")}; found ${JSON.stringify(name)}`);
  const given = parse(flags);
  const chosen = programsHere().filter(({ name, inUp }) => inUp === true && !without.includes(name));
  if (chosen.length === 0) throw new UsageError("there is no server to run: each that this tree has is named by --without");
  const stray = given.find((flag) => !isForAll(flag));
  if (stray !== undefined && !chosen.some(({ name }) => name === "node"))
    throw new UsageError(`--${stray.name} is a flag of the node, which --without leaves out; other servers take --section.key VALUE`);
  return chosen.map(({ name }) => ({
    name,
    argv: given.filter((flag) => name === "node" || isForAll(flag)).flatMap(({ words }) => words),
    portAdvice: `or move the server by ${name === "node" ? "--listen" : `--${name}.listen`} HOST:PORT (SVC_${name.toUpperCase()}_LISTEN), or leave it out by --without ${name}`,
  }));
}

/** The same flags for a process in another directory. */
export function absolute(flags: readonly string[]): string[] {
  return parse(flags).flatMap(({ words }) => words);
}

/** A setting by its full name says itself whose it is; a short flag means the node. */
function isForAll({ name }: Flag): boolean {
  return name.includes(".") || name === "config";
}

/** As the servers read them: --name=VALUE, or --name and the next word, which begins with no dash. */
function parse(words: readonly string[]): Flag[] {
  const flags: Flag[] = [];
  for (let index = 0; index < words.length; index++) {
    const word = words[index] ?? "";
    const [, name = "", inline] = /^--?([^=]+)(?:=(.*))?$/s.exec(word) ?? [];
    if (name === "") throw new UsageError(`up takes flags of servers; found ${JSON.stringify(word)}`);
    const next = words[index + 1];
    const isSplit = inline === undefined && next !== undefined && !next.startsWith("-");
    if (isSplit) index++;
    const value = isSplit ? next : inline;
    if (name === "config" && value !== undefined && value !== "") flags.push({ name, words: [`--config=${resolve(value)}`] });
    else flags.push({ name, words: isSplit ? [word, next] : [word] });
  }
  return flags;
}
