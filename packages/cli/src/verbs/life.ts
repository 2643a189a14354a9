// The verbs for existing sandboxes: pause, resume, fork, snapshot, network.
import { count, egressProxy, headerRule, outputOption, PROXY_PASSWORD, seconds, several, type Verb } from "./verb.ts";

/** The limit of contract/src/lifecycle.ts; it is not imported, since every --help would then load all schemas. */
const MAX_FORKS = 100;

export function addLifeVerbs(program: Verb): void {
  program
    .clientVerb("pause", "pause sandboxes: keep them on disk, free their memory and CPU")
    .argument("<ids...>", "the sandboxes")
    .option("--files-only", "keep only their files, not their processes")
    .usage("[options] <ids...>")
    .addHelpText(
      "after",
      `
Processes stop where they are and continue there when the sandbox is resumed. A paused sandbox has no timeout: it stays on
disk until svc resume or svc delete. With --files-only it takes less disk, and later starts again from its files.

Examples:
  svc pause $ID
  svc list -q --state running | xargs svc pause`,
    )
    .run(async (ids: string[], options: never) => (await import("../sandbox/life.ts")).pause(ids, options));

  program
    .clientVerb("resume", "resume a paused sandbox")
    .argument("<id>", "the sandbox")
    .option("--timeout <seconds>", "how long it lives from now (default: 300)", seconds)
    .option("--files-only", "start it from its files, even if its memory was kept")
    .addOption(outputOption())
    .usage("[options] <id>")
    .addHelpText(
      "after",
      `
Prints the id, or with --output json the full answer, as for create. A sandbox that is already running is left as it is, with
at least this timeout.

Examples:
  svc resume $ID
  svc resume $ID --timeout 3600`,
    )
    .run(async (id: string, options: never) => (await import("../sandbox/life.ts")).resume(id, options));

  program
    .clientVerb("fork", "copy a running sandbox, memory included")
    .argument("<id>", "the sandbox")
    .option("-n, --count <number>", `how many copies (1 to ${MAX_FORKS})`, count(MAX_FORKS), 1)
    .option("--timeout <seconds>", "how long each copy lives (default: the timeout that its source was given)", seconds)
    .option("-q, --quiet", "ids only")
    .addOption(outputOption())
    .usage("[options] <id>")
    .addHelpText(
      "after",
      `
All copies start from one checkpoint of the source, which keeps running. Each has its own id, tokens, hostname, machine-id and
kernel randomness, and the correct time. Random generators that a program seeded itself repeat in all copies.
Prints a row for each copy, or why it failed; exit code 1 if one failed.

Examples:
  svc fork $ID
  svc fork $ID -n 8 -q | while read -r CHILD; do svc exec -n $CHILD -- hostname; done`,
    )
    .run(async (id: string, options: never) => (await import("../sandbox/life.ts")).fork(id, options));

  program
    .clientVerb("move", "move a sandbox to another node of its deployment")
    .argument("<id>", "the sandbox")
    .option("--to <node>", "the target node, by id or URL (default: one that has room)")
    .addOption(outputOption())
    .usage("[options] <id>")
    .addHelpText(
      "after",
      `
The sandbox is paused, exported and resumed on the other node; a paused one stays paused. Requests wait meanwhile; open
connections end, as at every pause. The nodes must share etcd and object storage. Prints how long the sandbox stood still,
by stage.

Examples:
  svc move $ID
  svc move $ID --to $NODE`,
    )
    .run(async (id: string, options: never) => (await import("../sandbox/life.ts")).move(id, options));

  const snapshot = program.verb("snapshot", "save the state of a sandbox, to start others from it");
  snapshot
    .clientVerb("create", "take a snapshot of a running sandbox, which keeps running")
    .argument("<id>", "the sandbox")
    .argument("[name]", "NAME or NAME:TAG; a name always means the newest snapshot that was given it, and nothing once that is deleted")
    .option("--files-only", "keep only its files, not its processes")
    .addOption(outputOption())
    .usage("[options] <id> [name[:tag]]")
    .addHelpText("after", "\nExamples:\n  svc snapshot create $ID ready:v1\n  svc start ready:v1 -d")
    .run(async (id: string, name: string | undefined, options: never) => (await import("../sandbox/snapshot.ts")).createSnapshot(id, name, options));
  snapshot
    .clientVerb("list", "list the snapshots, newest first")
    .alias("ls")
    .option("--sandbox <id>", "only those of this sandbox, even if it is gone")
    .option("--name <name>", "only those with this NAME or NAME:TAG")
    .option("-q, --quiet", "ids only")
    .addOption(outputOption())
    .addHelpText("after", "\nExamples:\n  svc snapshot list\n  svc snapshot list --sandbox $ID --output json")
    .run(async (options: never) => (await import("../sandbox/snapshot.ts")).listSnapshots(options));
  snapshot
    .clientVerb("export", "write a snapshot to a file, for another node or deployment")
    .argument("<name>", "its id or name")
    .argument("<file>", "where to write it; - is stdout")
    .option("--with-base", "include the files of its base template, for nodes that have another version of it")
    .option("-f, --force", "replace the file")
    .option("-q, --quiet", "no progress")
    .usage("[options] <name> <file>")
    .addHelpText("after", "\nExamples:\n  svc snapshot export ready:v1 ready.svc\n  svc snapshot export ready:v1 - | ssh host svc snapshot import -")
    .run(async (name: string, file: string, options: never) => (await import("../sandbox/snapshot-file.ts")).exportSnapshot(name, file, options));
  snapshot
    .clientVerb("import", "import a snapshot from a file that svc snapshot export wrote")
    .argument("<file>", "the file; - is stdin")
    .option("--name <name>", "NAME or NAME:TAG to give it instead of its own")
    .option("-q, --quiet", "no progress")
    .addOption(outputOption())
    .usage("[options] <file>")
    .addHelpText("after", "\nExamples:\n  svc snapshot import ready.svc\n  svc snapshot import ready.svc --name ready:v2")
    .run(async (file: string, options: never) => (await import("../sandbox/snapshot-file.ts")).importSnapshot(file, options));
  snapshot
    .clientVerb("delete", "delete snapshots; sandboxes started from them keep running")
    .alias("rm")
    .argument("<names...>", "ids or names")
    .usage("[options] <names...>")
    .addHelpText("after", "\nExamples:\n  svc snapshot delete ready:v1\n  svc snapshot list -q --sandbox $ID | xargs svc snapshot delete")
    .run(async (names: string[], options: never) => (await import("../sandbox/snapshot.ts")).deleteSnapshots(names, options));

  program
    .clientVerb("network", "show or replace what a sandbox may reach")
    .argument("<id>", "the sandbox")
    .option("--allow-out <rule>", "allow this CIDR block, address, domain or *.domain (repeat for more)", several)
    .option("--deny-out <rule>", "block this CIDR block or address (repeat for more)", several)
    .option("--no-internet", "block everything except --allow-out")
    .option("--rule <rule>", "set a header in HTTPS requests to a host: 'HOST HEADER: VALUE', where VALUE may name secrets (repeat for more)", headerRule)
    .option("--dns-server <address>", "let only these DNS servers answer it: ADDRESS or ADDRESS:PORT (repeat for more)", several)
    .option(
      "--egress-proxy <[user@]host:port>",
      `send its TCP connections through this SOCKS5 proxy; the password of USER is read from ${PROXY_PASSWORD}`,
      egressProxy,
    )
    .option("--clear", "remove all rules")
    .addOption(outputOption())
    .usage("[options] <id>")
    .addHelpText(
      "after",
      `
Without options, shows the rules in force. New rules replace all earlier ones at once; --allow-out takes precedence over
--deny-out. Private ranges, cloud metadata and the host stay blocked, whatever is allowed. svc logs --network shows what was
denied, and by which rule.

Examples:
  svc network $ID
  svc network $ID --no-internet --allow-out packages.example.org --allow-out '*.example.org'
  svc network $ID --deny-out 203.0.113.0/24
  svc network $ID --rule 'api.example.com Authorization: Bearer \${e2b.secrets.NAME}'
  svc network $ID --egress-proxy proxy.example.com:1080
  svc network $ID --clear`,
    )
    .run(async (id: string, options: never) => (await import("../sandbox/network.ts")).network(id, options));
}
