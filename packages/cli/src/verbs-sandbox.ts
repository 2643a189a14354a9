// The verbs for sandboxes: start, connect, exec, upload, download, list, timeout, delete.
import { Option } from "commander";
import { environment, outputOption, pairs, seconds, several, type Verb } from "./verb.ts";

export function addSandboxVerbs(program: Verb): void {
  program
    .clientVerb("start", "start a sandbox; without -d, open a shell in it")
    .argument("[template]", "id or name of a template", "base")
    .option("-d, --detach", "print the sandbox's id and return")
    .option("--timeout <seconds>", "how long the sandbox lives", seconds, 300)
    .option("-m, --metadata <key=value>", "a label to find it by (repeat for more)", pairs)
    .option("-e, --env <name=value>", "a variable for all its processes; NAME alone takes this shell's value (repeat for more)", environment)
    .option("--no-internet", "let nothing out of the sandbox")
    .option("--allow-out <rule>", "what it may reach though all else is closed: CIDR block, address, domain, *.domain (repeat for more)", several)
    .option("--deny-out <rule>", "what it may not reach: CIDR block or address (repeat for more)", several)
    .option("--private", "demand the traffic access token for the sandbox's applications")
    .addOption(new Option("--auto-pause [what]", "pause it at its timeout instead of ending it; what to keep").choices(["memory", "files"]).preset("memory"))
    .option("--auto-resume", "let traffic to the paused sandbox resume it; with --auto-pause only")
    .option("--strict-files", "let uploads, downloads and the file API reach files with their user's rights alone")
    .option("--rm", "delete the sandbox when its shell ends")
    .addOption(outputOption())
    .usage("[options] [template]")
    .addHelpText(
      "after",
      `
The sandbox is always secure: only holders of the API key get into it.
Without -d on a terminal a shell is opened. When it ends, or you detach with Ctrl-], the sandbox lives on until its
timeout (with --rm it is deleted when the shell ends). While you are attached its life is extended.

Examples:
  svc start                                 a shell in a new sandbox
  ID=$(svc start base -d)                   the id, for scripts
  svc start base -d --timeout 3600 -m task=17 -e LANG=C.UTF-8
  svc start base -d --auto-pause --auto-resume      kept at its timeout, back at the next request
  svc start base -d --no-internet --allow-out packages.example.org --allow-out '*.example.org'
  svc start base -d --output json           the whole answer, tokens included`,
    )
    .run(async (template: string, options: never) => (await import("./start.ts")).start(template, options));

  program
    .clientVerb("connect", "open a terminal in a sandbox, or return to the one left open")
    .argument("<id>", "the sandbox")
    .option("--new", "a new shell, even where one runs already")
    .option("--session <name>", "name of the shell to open or to return to", "main")
    .option("-u, --user <name>", "the user inside the sandbox")
    .option("--detach-key <key>", "ctrl-] and the like, or none", "ctrl-]")
    .usage("[options] <id>")
    .addHelpText(
      "after",
      `
A shell that you left (Ctrl-], a closed window, a cut line) goes on; connect returns to it. What it printed meanwhile is
gone. Two terminals on one session share its screen. The exit code is the shell's. While you are attached the sandbox's
life is extended.

Examples:
  svc connect $ID
  svc connect $ID --new --user root`,
    )
    .run(async (id: string, options: never) => (await import("./connect.ts")).connect(id, options));

  program
    .clientVerb("exec", "run a command in a sandbox")
    .argument("<id>", "the sandbox")
    .argument("<command...>", "the command and its arguments, as they are; no shell reads them")
    .option("-u, --user <name>", "the user inside the sandbox")
    .option("-w, --cwd <directory>", "where to run it (default: the user's home)")
    .option("-e, --env <name=value>", "a variable; NAME alone takes this shell's value (repeat for more)", environment)
    .option("-t, --tty", "give the command a terminal")
    .option("-i, --interactive", "send what is typed, too (without -i only a pipe or a file is sent as stdin)")
    .option("-n, --no-stdin", "send no stdin: for use in loops that read one")
    .option("--timeout <seconds>", "end the command after this long (exit code 124)", seconds)
    .usage("[options] <id> -- <command...>")
    .addHelpText(
      "after",
      `
Exit code: the command's; 128 plus the signal that ended it; 127 when there is no such command; 124 after --timeout.
Ctrl-C and other signals go to the command, a second Ctrl-C kills it. The sandbox's life is not extended.

Examples:
  svc exec $ID -- python3 -c 'print(6*7)'
  svc exec $ID -- sh -c 'cd /tmp && ls | wc -l'
  tar c . | svc exec $ID -- tar x -C /home/user
  svc exec -t $ID -- vim notes.md`,
    )
    .run(async (id: string, command: string[], options: never) => (await import("./exec.ts")).exec(id, command, options));

  program
    .clientVerb("list", "list the sandboxes")
    .alias("ls")
    .option("-m, --metadata <key=value>", "only those with this label (repeat for more)", pairs)
    .option("--template <name>", "only those of this template")
    .addOption(new Option("--state <state>", "only those in this state").choices(["running", "paused"]))
    .option("--tree", "each below the sandbox it was forked from")
    .option("-q, --quiet", "ids only")
    .addOption(outputOption())
    .addHelpText(
      "after",
      "\nExamples:\n  svc list\n  svc list --tree\n  svc list --state paused\n  svc list -m task=17 --output json\n  svc list -q | xargs svc delete",
    )
    .run(async (options: never) => (await import("./list.ts")).list(options));

  program
    .clientVerb("timeout", "let a sandbox end this many seconds from now")
    .argument("<id>", "the sandbox")
    .argument("<seconds>", "from now; may be less than it has left", seconds)
    .usage("[options] <id> <seconds>")
    .addHelpText("after", "\nExample:\n  svc timeout $ID 3600")
    .run(async (id: string, secondsLeft: number, options: never) => (await import("./timeout.ts")).timeout(id, secondsLeft, options));

  program
    .clientVerb("delete", "end sandboxes and all in them")
    .alias("rm")
    .argument("[ids...]", "the sandboxes")
    .option("--all", "every sandbox of the deployment")
    .option("-y, --yes", "do not ask before --all")
    .usage("[options] <ids...>")
    .addHelpText("after", "\nExamples:\n  svc delete $ID\n  svc delete --all --yes")
    .run(async (ids: string[], options: never) => (await import("./delete.ts")).remove(ids, options));
}

export function addFileVerbs(program: Verb): void {
  const copyVerb = (name: string, summary: string): Verb =>
    program
      .clientVerb(name, summary)
      .argument("<id>", "the sandbox")
      .option("-f, --force", "replace regular files that are there already")
      .option("--skip-links", "leave symbolic links and special files out instead of refusing")
      .option("-u, --user <name>", "the user inside the sandbox whose rights count")
      .option("-q, --quiet", "no progress, no summary");

  copyVerb("upload", "copy a file or a directory into a sandbox")
    .argument("<local>", "file or directory here; - reads stdin")
    .argument("[remote]", "path in the sandbox, relative to the user's home (default: the same name there)")
    .usage("[options] <id> <local> [remote]")
    .addHelpText(
      "after",
      `
As cp: into an existing directory (or one named with a slash at the end) under its own name, else to the path itself;
LOCAL/. copies what is in the directory; directories merge. Each file appears whole or not at all. Unlike cp: only regular
files are replaced, and only with --force; links, devices, pipes and sockets are never written to or replaced; missing
directories on the way to the target are created in the sandbox.

Examples:
  svc upload $ID data.csv                   to data.csv in the user's home
  svc upload $ID ./project /work            /work/project where /work exists, else /work
  svc upload $ID ./project/. /work --force
  echo hello | svc upload $ID - notes.txt`,
    )
    .run(async (id: string, local: string, remote: string | undefined, options: never) => (await import("./upload.ts")).upload(id, local, remote, options));

  copyVerb("download", "copy a file or a directory out of a sandbox")
    .argument("<remote>", "path in the sandbox, relative to the user's home")
    .argument("[local]", "path here (default: the same name in this directory); - writes to stdout")
    .usage("[options] <id> <remote> [local]")
    .addHelpText(
      "after",
      `
Paths work as in svc upload, and the same is left alone here; the directory that the target goes into must be there (a
target named with a slash at the end is created). For a device or a pipe, write to stdout: svc download $ID FILE - > PIPE

Examples:
  svc download $ID result.json
  svc download $ID /var/log ./logs
  svc download $ID notes.txt - | less`,
    )
    .run(async (id: string, remote: string, local: string | undefined, options: never) => (await import("./download.ts")).download(id, remote, local, options));
}
