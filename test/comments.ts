// Extracts comments, Markdown paragraphs and test names as whole sentences, for the checks of wording.

export type Passage = { readonly line: number; readonly text: string };

/** The comment markers, without directives of tools and shebang lines. */
const wholeLine = { slashes: /^\s*\/\/+ ?(?!go:|#include|nolint|@ts|biome-)(.*)$/, hash: /^\s*#(?![!{]) ?(.*)$/ };
const trailing = { slashes: /^.*?[\s;,{})]\/\/ (.*)$/, hash: /^.*?\s# (.*)$/ };

/** Returns the comment after code on a line; a marker within an open quotation belongs to a text. */
function behindCode(line: string, marker: "slashes" | "hash"): string | undefined {
  const found = trailing[marker].exec(line);
  if (found === null) return undefined;
  const code = line.slice(0, line.length - (found[1] ?? "").length);
  const isQuoted = ['"', "'", "`"].some((quote) => (code.split(quote).length - 1) % 2 === 1);
  return isQuoted ? undefined : found[1];
}

/** Returns the comments of a TypeScript, Go, C++, shell or Python source; the lines of a block are joined, since a sentence may span them. */
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
    // An empty comment line separates two paragraphs.
    if (text.trim() === "") close();
    else open.text.push(text);
    if (whole === null) close();
  }
  close();
  return passages;
}

/** Returns the lines of a Markdown file outside its code blocks. */
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

/** Returns the names of a file's tests. */
export function testNamesOf(source: string): readonly Passage[] {
  return source.split("\n").flatMap((line, index) => {
    const name = /\b(?:test|it|describe|suite)(?:\.\w+)?\((["'`])(.*?)\1\s*,/.exec(line)?.[2];
    return name === undefined ? [] : [{ line: index + 1, text: name }];
  });
}
