// The comments of a source and the paragraphs of a Markdown file, as texts of whole sentences that the checks of wording can read.

export type Passage = { readonly line: number; readonly text: string };

/** The marker between two lines that one comment spans. */
const wholeLine = { slashes: /^\s*\/\/+ ?(?!go:|#include|nolint|@ts|biome-)(.*)$/, hash: /^\s*#(?![!{]) ?(.*)$/ };
const trailing = { slashes: /^.*?[\s;,{})]\/\/ (.*)$/, hash: /^.*?\s# (.*)$/ };

/** A comment behind code; a marker within an open quotation is part of a text. */
function behindCode(line: string, marker: "slashes" | "hash"): string | undefined {
  const found = trailing[marker].exec(line);
  if (found === null) return undefined;
  const code = line.slice(0, line.length - (found[1] ?? "").length);
  const isQuoted = ['"', "'", "`"].some((quote) => (code.split(quote).length - 1) % 2 === 1);
  return isQuoted ? undefined : found[1];
}

/** The comments of a TypeScript, Go, C++ or shell source; the lines of a block are joined, since a sentence may span them. */
export function commentsOf(file: string, source: string): readonly Passage[] {
  const marker = /\.(sh|awk|py)$/.test(file) || !file.includes(".") ? "hash" : "slashes";
  const passages: Passage[] = [];
  let open: { line: number; text: string[] } | undefined;
  let isBlock = false;
  const close = () => {
    if (open !== undefined && open.text.join("").trim() !== "") passages.push({ line: open.line, text: open.text.join(" ").trim() });
    open = undefined;
  };
  for (const [index, line] of source.split("\n").entries()) {
    const begins: RegExpExecArray | null = marker === "slashes" && !isBlock ? /^\s*\/\*+ ?(.*)$/.exec(line) : null;
    if (begins !== null || isBlock) {
      if (begins !== null) close();
      open ??= { line: index + 1, text: [] };
      const body: string = begins?.[1] ?? line.replace(/^\s*\*(?!\/) ?/, "");
      isBlock = !body.includes("*/");
      open.text.push(body.replace(/\s*\*\/.*$/, ""));
      if (!isBlock) close();
      continue;
    }
    const whole = wholeLine[marker].exec(line);
    if (whole === null) close();
    const text = whole?.[1] ?? behindCode(line, marker);
    if (text === undefined) continue;
    open ??= { line: index + 1, text: [] };
    // An empty comment line parts two paragraphs.
    if (text.trim() === "") close();
    else open.text.push(text);
    if (whole === null) close();
  }
  close();
  return passages;
}

/** The lines of a Markdown file outside its code blocks. */
export function proseOf(source: string): readonly Passage[] {
  let isCode = false;
  return source.split("\n").flatMap((text, index) => {
    if (/^\s*```/.test(text)) {
      isCode = !isCode;
      return [];
    }
    return isCode || text.trim() === "" ? [] : [{ line: index + 1, text }];
  });
}

/** The names of a file's tests. */
export function testNamesOf(source: string): readonly Passage[] {
  return source.split("\n").flatMap((line, index) => {
    const name = /\b(?:test|it|describe|suite)(?:\.\w+)?\((["'`])(.*?)\1\s*,/.exec(line)?.[2];
    return name === undefined ? [] : [{ line: index + 1, text: name }];
  });
}
