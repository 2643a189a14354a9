// Patterns over paths, for COPY sources and .dockerignore.
import { fail } from "./failures.ts";

/**
 * Translates an anchored pattern over paths with `/`: `*` and `?` stay within a name, `**` crosses folders, [a-z] and {a,b} work as in a shell; a leading dot
 * is an ordinary character.
 */
export function globPattern(glob: string): RegExp {
  try {
    return new RegExp(`^${translated(glob)}$`, "s");
  } catch (cause) {
    return fail("INVALID_REQUEST", `'${glob}' is not a valid pattern: a range in brackets runs backwards`, { cause });
  }
}

function translated(glob: string): string {
  let out = "";
  for (let at = 0; at < glob.length; at++) {
    const char = glob[at] ?? "";
    if (char === "\\" && at + 1 < glob.length) {
      out += literal(glob[++at] ?? "");
    } else if (char === "*" && glob[at + 1] === "*") {
      const wholeName = (at === 0 || glob[at - 1] === "/") && glob[at + 2] === "/";
      out += wholeName ? "(?:.*/)?" : ".*";
      at += wholeName ? 2 : 1;
    } else if (char === "*") {
      out += "[^/]*";
    } else if (char === "?") {
      out += "[^/]";
    } else if (char === "[") {
      const end = closing(glob, at);
      if (end === -1) out += "\\[";
      else {
        const inside = glob
          .slice(at + 1, end)
          .replace(/^[!^]/, "")
          .replace(/[\\\]]/g, "\\$&");
        out += `(?!/)[${/^[!^]/.test(glob.slice(at + 1)) ? "^" : ""}${inside.replace(/^\^/, "\\^")}]`;
        at = end;
      }
    } else if (char === "{") {
      const end = glob.indexOf("}", at);
      const options = end === -1 ? [] : glob.slice(at + 1, end).split(",");
      if (options.length < 2) out += "\\{";
      else {
        out += `(?:${options.map(translated).join("|")})`;
        at = end;
      }
    } else {
      out += literal(char);
    }
  }
  return out;
}

/** Finds the closing bracket; a `]` directly after the opening one is a character of the set. */
function closing(glob: string, at: number): number {
  const from = /^\[[!^]?\]/.test(glob.slice(at)) ? glob.indexOf("]", at + 1) + 1 : at + 1;
  const end = glob.indexOf("]", from);
  return end > at + 1 ? end : -1;
}

function literal(char: string): string {
  return char.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
}
