// Phrases that people should not have to read, each with the standard term, and a parser that finds texts in a source.

/** The part of the house's glossary whose phrases are never right in a text for people; ordinary words are allowed. */
const phrases: readonly (readonly [RegExp, string])[] = [
  [/\basked for\b/i, 'expected X, got "Y"; requested'],
  [/\bat most (was|were) /i, "the maximum is"],
  [/(?<!\bthere )\bis no (?!longer\b|more\b)/i, "is not a valid …"],
  [/\bmend(s|ed|ing)?\b/i, "fix, workaround"],
  [/\bshel(f|ves)\b/i, "template pool"],
  [/\b(front )?doors?\b/i, "route, endpoint, proxy"],
  [/\btak(e|es|ing) turns\b/i, "serialized by a keyed lock"],
  [/\btaken apart\b/i, "torn down"],
  [/\bfigures\b/i, "metrics"],
  [/\breckon(s|ed|ing)?\b/i, "compute"],
  [/\bpatience\b/i, "retry, bound"],
  [/\bworkshop\b/i, "build context"],
  [/\bwants (?!\|)/i, 'expected X, got "Y"'],
  [/\bleftovers?\b/i, "pending, slice"],
  [/(?<=\s)captur(e|es|ed|ing)\b|\bcaptur(e|es|ed|ing)(?=\s)/i, "checkpoint"],
];

/** Words of the house's former dialect, which comments, test names and papers must avoid as well. */
const formerWords: readonly (readonly [RegExp, string])[] = [
  [/\bset aside\b/i, "quarantined"],
  [/\bwhoever\b/i, "the caller, any client that"],
  [/\bin vain\b/i, "without effect"],
  [/\banew\b/i, "again"],
  [/\b(go|goes|going) on in\b/i, "resume in, restore into"],
  [/\btold\b(?! apart)/i, "notified, reported"],
  [/\bin doubt\b/i, "unverified"],
  [/\bstillness\b/i, "write barrier"],
  [/\bshort ways?\b/i, "fast path"],
  [/\b(begin(s|ning)?|began|begun) again\b/i, "retry"],
  [/\bthe field's\b|\b(as|in|by|of|to|from) the field\b(?! (of|that|is|holds)\b)/i, "name it: Mooncake, E2B, vLLM"],
  [/\bblanks?\b(?! (line|page|character|row|cell|space|field))/i, "precreated sandbox"],
  [/\brests\b(?! on\b)/i, "is stored only in object storage"],
  [/\btravel(s|led|ling|ed|ing)?\b/i, "transfer, replicate"],
  [/\bwish(es|ed)?\b/i, "put policy, request"],
  [/\bso many\b/i, "that number, a bounded number"],
];

/** A comment with such a beginning has no subject, so its reader has to guess what it describes. */
const noSubject = /^(Of|To|By|What|Whether|Whoever|Whose|Who|Those|Nobody|Nothing|One that|One who|So many|So much|So long)\b/;

function found(list: typeof phrases, text: string): string | undefined {
  for (const [phrase, better] of list) {
    const match = phrase.exec(text);
    if (match !== null) return `"${match[0].trim()}" (write: ${better})`;
  }
  return undefined;
}

export function phraseIn(text: string): string | undefined {
  return found(phrases, text);
}

/** Returns the first fault of a test's name or a paragraph; code within backticks and file names are not checked. */
export function faultOfProse(text: string): string | undefined {
  const prose = text.replaceAll(/`[^`]*`/g, "``").replaceAll(/[\w./-]+\.(?:ts|js|go|cc|h|c|sh|py|md|toml)\b/g, "FILE");
  return found([...phrases, ...formerWords], prose);
}

export function faultOfComment(text: string): string | undefined {
  const start = noSubject.exec(text);
  return start === null ? faultOfProse(text) : `begins with "${start[0]}" (write: a sentence with a subject)`;
}

/** Returns the string and template literals of a TypeScript source by line, without the code inside `${}`. */
export function textsOf(source: string): readonly { readonly line: number; readonly text: string }[] {
  const found: { line: number; text: string }[] = [];
  let line = 1;
  let at = 0;
  /** The last character that is neither white space nor comment; it decides whether a slash begins a regular expression. */
  let before = "(";
  const braces: number[] = [];

  function literal(quote: string): void {
    let text = "";
    let begin = line;
    const emit = () => {
      if (text.trim() !== "") found.push({ line: begin, text });
      text = "";
    };
    for (; at < source.length; at++) {
      const char = source[at] ?? "";
      if (char === "\\") {
        text += source.slice(at, at + 2);
        at++;
      } else if (char === quote) break;
      else if (quote === "`" && char === "$" && source[at + 1] === "{") {
        braces.push(0);
        at += 2;
        emit();
        return;
      } else if (char === "\n") {
        emit();
        line++;
        begin = line;
      } else text += char;
    }
    at++;
    before = quote;
    emit();
  }

  function pattern(): void {
    let isClass = false;
    for (at++; at < source.length && source[at] !== "\n"; at++) {
      const char = source[at];
      if (char === "\\") at++;
      else if (char === "[") isClass = true;
      else if (char === "]") isClass = false;
      else if (char === "/" && !isClass) break;
    }
    at++;
    before = ")";
  }

  while (at < source.length) {
    const char = source[at] ?? "";
    const two = source.slice(at, at + 2);
    if (two === "//") at = Math.max(source.indexOf("\n", at), at + 2);
    else if (two === "/*") {
      const end = source.indexOf("*/", at);
      line += source.slice(at, end).split("\n").length - 1;
      at = end + 2;
    } else if (char === '"' || char === "'" || char === "`") {
      at++;
      literal(char);
    } else if (char === "/" && /[(,=:[!&|?{};+>]/.test(before)) pattern();
    else if (char === "}" && braces.at(-1) === 0) {
      braces.pop();
      at++;
      literal("`");
    } else {
      if (char === "{" && braces.length > 0) braces.push((braces.pop() ?? 0) + 1);
      if (char === "}" && braces.length > 0) braces.push((braces.pop() ?? 1) - 1);
      if (char === "\n") line++;
      if (!/\s/.test(char)) before = char;
      at++;
    }
  }
  return found;
}
