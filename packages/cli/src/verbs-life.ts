// The verbs for what follows a sandbox's start: pause, resume, fork, snapshot, network.
import { count, outputOption, seconds, several, type Verb } from "./verb.ts";

/** As contract/src/lifecycle.ts has it; not imported, since every --help would load all schemas. */
const MAX_FORKS = 100;

export function addLifeVerbs(program: Verb): void {
  program
    .clientVerb("pause", "keep sandboxes on disk and free what they use")
    .argument("<ids...>", "the sandboxes")
    .option("--files-only", "keep their files, not their processes")
    .usage("[options] <ids...>")
    .addHelpText(
      "after",
      `
Processes stop where they are and go on there when the sandbox is resumed. A paused sandbox has no timeout: it stays,
on disk, until svc resume or svc delete. With --files-only it later starts anew from its files, which takes less room.

Examples:
  svc pause $ID
  svc list -q --state running | xargs svc pause`,
    )
    .run(async (ids: string[], options: never) => (await import("./pause.ts")).pause(ids, options));

  program
    .clientVerb("resume", "let a paused sandbox run again")
    .argument("<id>", "the sandbox")
    .option("--timeout <seconds>", "how long it lives from now (default: 300)", seconds)
    .option("--files-only", "start it anew from its files, even where its memory was kept")
    .addOption(outputOption())
    .usage("[options] <id>")
    .addHelpText(
      "after",
      `
Prints the id, with --output json the answer that create gives. A sandbox that runs already is left as it is, with at
least this much time.

Examples:
  svc resume $ID
  svc resume $ID --timeout 3600`,
    )
    .run(async (id: string, options: never) => (await import("./resume.ts")).resume(id, options));

  program
    .clientVerb("fork", "copy a running sandbox, memory included")
    .argument("<id>", "the sandbox")
    .option("-n, --count <number>", `how many copies, ${MAX_FORKS} at most`, count(MAX_FORKS), 1)
    .option("--timeout <seconds>", "how long each copy lives (default: as long as its source was given)", seconds)
    .option("-q, --quiet", "ids only")
    .addOption(outputOption())
    .usage("[options] <id>")
    .addHelpText(
      "after",
      `
All copies come from one capture; the source goes on. Each has its own id, tokens, hostname, machine-id, kernel
randomness and the right time. What a program drew from its own seeded generator is the same in all of them.
Each copy gets a row, or the reason why it is not there; exit code 1 when one failed.

Examples:
  svc fork $ID
  svc fork $ID -n 8 -q | while read -r CHILD; do svc exec -n $CHILD -- hostname; done`,
    )
    .run(async (id: string, options: never) => (await import("./fork.ts")).fork(id, options));

  const snapshot = program.verb("snapshot", "keep what a sandbox is now, to start others from");
  snapshot
    .clientVerb("create", "take a snapshot of a running sandbox, which goes on")
    .argument("<id>", "the sandbox")
    .argument("[name]", "NAME or NAME:TAG; it moves to the newest snapshot that bears it")
    .option("--files-only", "its files, not its processes")
    .addOption(outputOption())
    .usage("[options] <id> [name[:tag]]")
    .addHelpText("after", "\nExamples:\n  svc snapshot create $ID ready:v1\n  svc start ready:v1 -d")
    .run(async (id: string, name: string | undefined, options: never) => (await import("./snapshot.ts")).createSnapshot(id, name, options));
  snapshot
    .clientVerb("list", "list the snapshots, newest first")
    .alias("ls")
    .option("--sandbox <id>", "only those of this sandbox, even if it is gone")
    .option("--name <name>", "only those that bear this NAME or NAME:TAG")
    .option("-q, --quiet", "ids only")
    .addOption(outputOption())
    .addHelpText("after", "\nExamples:\n  svc snapshot list\n  svc snapshot list --sandbox $ID --output json")
    .run(async (options: never) => (await import("./snapshot.ts")).listSnapshots(options));
  snapshot
    .clientVerb("delete", "delete snapshots; sandboxes started from them go on")
    .alias("rm")
    .argument("<names...>", "ids or names")
    .usage("[options] <names...>")
    .addHelpText("after", "\nExamples:\n  svc snapshot delete ready:v1\n  svc snapshot list -q --sandbox $ID | xargs svc snapshot delete")
    .run(async (names: string[], options: never) => (await import("./snapshot.ts")).deleteSnapshots(names, options));

  program
    .clientVerb("network", "show or replace what a sandbox may reach")
    .argument("<id>", "the sandbox")
    .option("--allow-out <rule>", "a CIDR block, address, domain or *.domain that may be reached (repeat for more)", several)
    .option("--deny-out <rule>", "a CIDR block or address that may not be reached (repeat for more)", several)
    .option("--no-internet", "close all but what --allow-out names")
    .option("--clear", "take all rules away")
    .addOption(outputOption())
    .usage("[options] <id>")
    .addHelpText(
      "after",
      `
Without a rule it shows those in force. Given rules replace all earlier ones, at once and as a whole; --allow-out wins over
--deny-out. Private ranges, cloud metadata and this host stay closed, whatever is allowed. What was denied stands, with
its reason, in svc logs --network.

Examples:
  svc network $ID
  svc network $ID --no-internet --allow-out packages.example.org --allow-out '*.example.org'
  svc network $ID --deny-out 203.0.113.0/24
  svc network $ID --clear`,
    )
    .run(async (id: string, options: never) => (await import("./network.ts")).network(id, options));
}
