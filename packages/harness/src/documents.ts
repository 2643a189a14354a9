// The commands of a guide, as one shell script in the order in which they stand.
import { readFileSync } from "node:fs";

const MARK = "<!-- tested";

/** Undefined where the guide does not promise to be tested. */
export function scriptOf(path: string): string | undefined {
  const text = readFileSync(path, "utf8");
  if (!text.includes(MARK)) return undefined;
  const blocks = [...text.matchAll(/^```(bash|python|js)\n(.*?)^```$/gms)];
  return ["set -euxo pipefail", ...blocks.map(([, language = "", code = ""]) => commandOf(language, code))].join("\n");
}

function commandOf(language: string, code: string): string {
  if (language === "python") return `python3 -W ignore - <<'END_OF_BLOCK'\n${code}END_OF_BLOCK`;
  if (language === "js") return `node --input-type=module - <<'END_OF_BLOCK'\n${code}END_OF_BLOCK`;
  return code;
}
