// Joins the commands of a guide into one shell script, in order.
import { readFileSync } from "node:fs";

const MARK = "<!-- tested";

/** Returns undefined if the guide is not marked as tested. */
export function scriptOf(path: string): string | undefined {
  const text = readFileSync(path, "utf8");
  return text.includes(MARK) ? commandsOf(text) : undefined;
}

export function commandsOf(text: string): string {
  const blocks = [...text.matchAll(/^```(bash|python|js)\n(.*?)^```$/gms)];
  return ["set -euxo pipefail", ...blocks.map(([, language = "", code = ""]) => commandOf(language, code))].join("\n");
}

function commandOf(language: string, code: string): string {
  if (language === "python") return `python3 -W ignore - <<'END_OF_BLOCK'\n${code}END_OF_BLOCK`;
  if (language === "js") return `node --input-type=module - <<'END_OF_BLOCK'\n${code}END_OF_BLOCK`;
  return code;
}
