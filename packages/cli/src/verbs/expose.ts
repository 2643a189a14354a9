// The verbs for previews: give a port of a sandbox a stable name, list and remove such names.
import { InvalidArgumentError } from "commander";
import { outputOption, type Verb } from "./verb.ts";

export function addExposeVerbs(program: Verb): void {
  const expose = program
    .clientVerb("expose", "give a port of a sandbox a name of its own, NAME.DOMAIN")
    .argument("<id>", "the sandbox")
    .argument("<port>", "the port inside", port)
    .option("--name <name>", "the name: a-z, 0-9 and '-', the first a letter (required)")
    .option("--replace", "take the name over if it leads to another port or sandbox")
    .addOption(outputOption())
    .usage("[options] <id> <port>")
    .addHelpText(
      "after",
      `
The name stays for as long as the sandbox exists, over pauses, moves and restarts of servers. The rules of the port apply: a sandbox
with --private needs its traffic access token.

Examples:
  svc expose $ID 3000 --name app           prints http://app.localhost:8000, or https://app.DOMAIN
  svc expose $OTHER 3000 --name app --replace
  svc expose list
  svc expose remove app`,
    );
  expose.run(async (id: string, its: number, options: never) => (await import("../sandbox/expose.ts")).expose(id, its, options));
  expose
    .clientVerb("list", "list the names, of one sandbox or of all")
    .alias("ls")
    .argument("[id]", "the sandbox")
    .option("-q, --quiet", "names only")
    .addOption(outputOption())
    .usage("[options] [id]")
    .addHelpText("after", "\nExamples:\n  svc expose list\n  svc expose list $ID --output json")
    .run(async (id: string | undefined, options: never) => (await import("../sandbox/expose.ts")).listPreviews(id, options));
  expose
    .clientVerb("remove", "remove names; the sandboxes are not changed")
    .alias("rm")
    .argument("<names...>", "the names")
    .usage("[options] <names...>")
    .addHelpText("after", "\nExamples:\n  svc expose remove app")
    .run(async (names: string[], options: never) => (await import("../sandbox/expose.ts")).removePreviews(names, options));
}

function port(text: string): number {
  const value = Number(text);
  if (!/^\d{1,5}$/.test(text) || value < 1 || value > 65_535) throw new InvalidArgumentError("Expected a port from 1 to 65535.");
  return value;
}
