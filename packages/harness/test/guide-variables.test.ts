// The guides in a plain shell: every variable that a command uses is set by the guide itself, or has a default.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { ROOT } from "../src/run-guide.ts";

/** Variables that every shell sets. */
const SHELLS = new Set(["HOME", "PWD", "PATH", "USER", "HOSTNAME", "RANDOM"]);

/** Variables that a block uses before the guide has set them; `$ID` in a comment counts for nothing. */
function unset(guide: string): readonly string[] {
  const known = new Set(SHELLS);
  const wrong: string[] = [];
  for (const [, block = ""] of guide.matchAll(/^```bash\n(.*?)^```$/gms)) {
    // The shell expands nothing in single quotes, and a quoted here-document belongs to another program.
    const script = block
      .replace(/<<'(\w+)'\n.*?^\1$/gms, "")
      .replace(/'[^'\n]*'/g, "")
      .replace(/(^|\s)#.*$/gm, "$1");
    for (const line of script.split("\n")) {
      for (const [, name = ""] of line.matchAll(/\b(?:for|read(?: -r)?) ([A-Za-z_]\w*)/g)) known.add(name);
      for (const [, name = ""] of line.matchAll(/\$\{?([A-Za-z_]\w*)(?![\w]*:?-)/g)) if (!known.has(name)) wrong.push(`$${name} in: ${line.trim()}`);
      for (const [, name = ""] of line.matchAll(/(?:^|[\s;(&])([A-Za-z_]\w*)\+?=/g)) known.add(name);
    }
  }
  return wrong;
}

for (const name of ["README.md", ...readdirSync(join(ROOT, "docs")).flatMap((file) => (file.endsWith(".md") ? [`docs/${file}`] : []))])
  void test(`in a plain shell, the commands of ${name} use no variable that the reader does not have`, () => {
    assert.deepEqual(unset(readFileSync(join(ROOT, name), "utf8")), []);
  });
