// Splits a Dockerfile into instructions: joins continued lines, drops comments, and separates words and quotes.
import { fail } from "./failures.ts";

/** `expands` is false if the delimiter was quoted: variables then stay as written. */
export type HereDocument = { readonly name: string; readonly content: string; readonly expands: boolean };
export type Instruction = { readonly line: number; readonly keyword: string; readonly rest: string; readonly documents: readonly HereDocument[] };
export type Lines = { readonly escapeChar: string; readonly instructions: readonly Instruction[] };

/** @throws INVALID_REQUEST with the line's number. */
export function instructionsOf(text: string): Lines {
  const lines = text.replace(/^\uFEFF/, "").split(/\r?\n/);
  const escapeChar = escapeOf(lines);
  const instructions: Instruction[] = [];
  let pending: { line: number; text: string } | undefined;
  for (let at = 0; at < lines.length; at++) {
    const raw = lines[at] ?? "";
    if (/^\s*#/.test(raw) || (raw.trim() === "" && pending !== undefined)) continue;
    const continued = endsContinued(raw, escapeChar);
    const part = continued === undefined ? raw : continued;
    const joined: { line: number; text: string } = pending === undefined ? { line: at + 1, text: part } : { line: pending.line, text: pending.text + part };
    pending = continued === undefined ? undefined : joined;
    if (pending !== undefined || joined.text.trim() === "") continue;
    const instruction = instructionOf(joined);
    const found = documentsAfter(lines, at, instruction);
    at = found.last;
    instructions.push({ ...instruction, documents: found.documents });
  }
  if (pending !== undefined) instructions.push(instructionOf(pending));
  return { escapeChar, instructions };
}

const hereDocument = /(?<![<\w])<<(-?)(["']?)([A-Za-z_][\w.-]*)\2/g;
const withDocuments: readonly string[] = ["RUN", "COPY", "ADD"];

/** Reads the here-documents that an instruction names; `last` is the line of the last delimiter. */
function documentsAfter(lines: readonly string[], from: number, { keyword, rest, line }: Instruction): { documents: HereDocument[]; last: number } {
  const documents: HereDocument[] = [];
  let last = from;
  if (!withDocuments.includes(keyword) || jsonForm(rest) !== undefined) return { documents, last };
  for (const [, dash = "", quote = "", name = ""] of rest.matchAll(hereDocument)) {
    const content: string[] = [];
    const strip = (text: string) => (dash === "" ? text : text.replace(/^\t+/, ""));
    let at = last + 1;
    for (; at < lines.length && strip(lines[at] ?? "") !== name; at++) content.push(`${strip(lines[at] ?? "")}\n`);
    if (at >= lines.length)
      fail("INVALID_REQUEST", `Dockerfile line ${line}: ${keyword}: the here-document ${name} has no end: expected a line with ${name} alone`);
    documents.push({ name, content: content.join(""), expands: quote === "" });
    last = at;
  }
  return { documents, last };
}

/** Returns the line without its last character if that is the continuation character, else undefined. */
function endsContinued(raw: string, escapeChar: string): string | undefined {
  const trimmed = raw.trimEnd();
  return trimmed.endsWith(escapeChar) ? trimmed.slice(0, -1) : undefined;
}

/** `# escape=` is valid only among the directives at the very top. */
function escapeOf(lines: readonly string[]): string {
  for (const line of lines) {
    const directive = /^\s*#\s*([a-z]+)\s*=\s*(\S+)\s*$/i.exec(line);
    if (directive === null) break;
    if (directive[1]?.toLowerCase() === "escape") return directive[2] === "`" ? "`" : "\\";
  }
  return "\\";
}

function instructionOf({ line, text }: { line: number; text: string }): Instruction {
  const [, keyword = "", rest = ""] = /^\s*(\S+)\s*([\s\S]*)$/.exec(text) ?? [];
  if (!/^[A-Za-z]+$/.test(keyword)) fail("INVALID_REQUEST", `Dockerfile line ${line}: '${keyword}' is not an instruction`);
  return { line, keyword: keyword.toUpperCase(), rest: rest.trimEnd(), documents: [] };
}

/** Parses the JSON form, `["a", "b"]`; undefined for any other text. */
export function jsonForm(text: string): string[] | undefined {
  if (!text.trimStart().startsWith("[")) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    return Array.isArray(value) && value.every((word) => typeof word === "string") ? value : undefined;
  } catch {
    return undefined;
  }
}

export type Flag = { readonly name: string; readonly value: string };

/** Takes the flags, which precede everything else, for example --chown=a:b. */
export function takeFlags(text: string): { flags: Flag[]; rest: string } {
  const flags: Flag[] = [];
  let rest = text;
  for (let match = /^--([a-z][\w-]*)(?:=(\S+))?(?:\s+|$)/.exec(rest); match !== null; match = /^--([a-z][\w-]*)(?:=(\S+))?(?:\s+|$)/.exec(rest)) {
    flags.push({ name: match[1] ?? "", value: match[2] ?? "" });
    rest = rest.slice(match[0].length);
  }
  return { flags, rest };
}

/** Splits at spaces outside quotes; quotes and escapes stay in the words, for `unquoted` to interpret. */
export function wordsOf(text: string, escapeChar: string): string[] {
  const words: string[] = [];
  let word = "";
  let quote = "";
  for (let at = 0; at < text.length; at++) {
    const char = text[at] ?? "";
    if (char === escapeChar && quote !== "'" && at + 1 < text.length) {
      word += char + text[++at];
    } else if (quote !== "") {
      if (char === quote) quote = "";
      word += char;
    } else if (/\s/.test(char)) {
      if (word !== "") words.push(word);
      word = "";
    } else {
      if (char === '"' || char === "'") quote = char;
      word += char;
    }
  }
  return word === "" ? words : [...words, word];
}

/** Returns a variable's value, or undefined to leave the reference in place. */
export type Lookup = (name: string) => string | undefined;

const reference = /^\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::([-+])([^}]*))?\})/;

/**
 * Removes quotes and escapes and replaces variables. A variable that the lookup does not know stays a reference, and a literal dollar is escaped, since the
 * server later replaces the image's own variables.
 */
export function unquoted(text: string, escapeChar: string, lookup: Lookup): string {
  let out = "";
  let quote = "";
  for (let at = 0; at < text.length; at++) {
    const char = text[at] ?? "";
    const next = text[at + 1];
    if (quote === "'") {
      if (char === "'") quote = "";
      else out += char === "$" ? "\\$" : char;
    } else if (char === escapeChar && next !== undefined) {
      at++;
      // Within double quotes, only these characters lose the escape character before them.
      if (next === "$") out += "\\$";
      else out += quote === '"' && next !== '"' && next !== escapeChar ? char + next : next;
    } else if (char === quote) {
      quote = "";
    } else if (quote === "" && (char === '"' || char === "'")) {
      quote = char;
    } else if (char === "$") {
      const match = reference.exec(text.slice(at));
      if (match === null) out += "\\$";
      else {
        const value = replaced(match, escapeChar, lookup);
        out += value ?? match[0];
        at += match[0].length - 1;
      }
    } else {
      out += char;
    }
  }
  return out;
}

function replaced([, plain, braced, operator, word = ""]: RegExpExecArray, escapeChar: string, lookup: Lookup): string | undefined {
  const value = lookup(plain ?? braced ?? "");
  if (value === undefined) return undefined;
  const literal = value.replaceAll("$", "\\$");
  if (operator === "-") return value === "" ? unquoted(word, escapeChar, lookup) : literal;
  if (operator === "+") return value === "" ? "" : unquoted(word, escapeChar, lookup);
  return literal;
}
