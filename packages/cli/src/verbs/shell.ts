// The verbs for shells and programs: completion, the manual, and running a user's program.
import { Argument } from "commander";
import { type IDKind, idKinds } from "../shell/complete-ids-kinds.ts";
import { completionScript, manPage, type Shell, shells } from "../shell/completion.ts";
import { version } from "../shell/version.ts";
import type { Verb } from "./verb.ts";

export function addShellVerbs(program: Verb): void {
  program
    .verb("run", "run a JavaScript or TypeScript file on the pinned Node")
    .argument("<file>", "the program")
    .argument("[args...]", "its arguments")
    .passThroughOptions()
    .addHelpText(
      "after",
      `
The packages of this tree can be imported (@svc/contract/client.ts is the client of the sandbox platform), and the
server's URL and key are in the environment, for it (SVC_URL, SDK_API_KEY) and for the E2B SDKs (E2B_API_URL, E2B_API_KEY).

Examples:
  svc run agent.ts --task 7`,
    )
    .run(async (file: string, args: string[]) => (await import("../shell/run-file.ts")).runFile(file, args));

  program
    .verb("completion", "print a shell's completion of these commands")
    .addArgument(new Argument("<shell>", "the shell").choices(shells))
    .addHelpText(
      "after",
      `
Examples:
  source <(svc completion bash)
  svc completion zsh > "\${fpath[1]}/_svc"
  svc completion fish | source`,
    )
    .run(async (shell: Shell) => print(completionScript(shell, program)));

  (program.command("complete-ids", { hidden: true }) as Verb)
    .description("print what a shell offers where a verb takes an id")
    .addArgument(new Argument("<kinds...>", "of what").choices(idKinds))
    .addHelpText("after", "\nExamples:\n  svc complete-ids sandboxes")
    .run(async (kinds: IDKind[]) => (await import("../shell/complete-ids.ts")).completeIDs(kinds));

  program
    .verb("version", "print the version of this tree")
    .addHelpText("after", "\nExamples:\n  svc version")
    .run(async () => print(`${version()}\n`));

  program
    .verb("man", "print the manual, for man -l -")
    .addHelpText("after", "\nExamples:\n  svc man | man -l -")
    .run(async () => print(manPage(program, version())));
}

async function print(text: string): Promise<number> {
  process.stdout.write(text);
  return 0;
}
