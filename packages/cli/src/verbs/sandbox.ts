// The verbs for sandboxes: start, connect, exec, upload, download, list, timeout, delete.
import { Option } from "commander";
import {
  egressProxy,
  environment,
  headerRule,
  outputOption,
  PROXY_PASSWORD,
  pairs,
  seconds,
  several,
  textEnvironment,
  type Verb,
  volumeMount,
} from "./verb.ts";

export function addSandboxVerbs(program: Verb): void {
  program
    .clientVerb("start", "start a sandbox; without -d, open a shell in it")
    .argument("[template]", "id or name of a template", "base")
    .option("-d, --detach", "print the sandbox's id and return")
    .option("--timeout <seconds>", "how long the sandbox lives", seconds, 300)
    .option("-m, --metadata <key=value>", "a label to find it by (repeat for more)", pairs)
    .option("-e, --env <name=value>", "a variable for all its processes; NAME alone takes this shell's value (repeat for more)", textEnvironment)
    .option("--no-internet", "block all traffic out of the sandbox")
    .option(
      "--allow-out <rule>",
      "allow this destination even if --deny-out or --no-internet blocks it: CIDR block, address, domain, *.domain (repeat for more)",
      several,
    )
    .option("--deny-out <rule>", "block this destination: CIDR block or address (repeat for more)", several)
    .option("--rule <rule>", "set a header in HTTPS requests to a host: 'HOST HEADER: VALUE', where VALUE may name secrets (repeat for more)", headerRule)
    .option("--dns-server <address>", "let only these DNS servers answer it: ADDRESS or ADDRESS:PORT (repeat for more)", several)
    .option(
      "--egress-proxy <[user@]host:port>",
      `send its TCP connections through this SOCKS5 proxy; the password of USER is read from ${PROXY_PASSWORD}`,
      egressProxy,
    )
    .option("--private", "require the traffic access token for the sandbox's applications")
    .addOption(new Option("--auto-pause [what]", "pause it at its timeout instead of ending it; what to keep").choices(["memory", "files"]).preset("memory"))
    .option("--auto-resume", "let traffic to the paused sandbox resume it; with --auto-pause only")
    .option("--idle-pause <seconds>", "pause it after this long without a request, a connection or CPU use; with --auto-resume only", seconds)
    .option("--volume <volume:path>", "mount a volume at this path (repeat for more)", volumeMount)
    .option("--strict-files", "limit uploads, downloads and the file API to their user's own permissions")
    .option("--rm", "delete the sandbox when its shell ends")
    .addOption(outputOption())
    .usage("[options] [template]")
    .addHelpText(
      "after",
      `
The sandbox is always secure: only holders of the API key get into it.
Without -d, on a terminal, a shell is opened. When you leave it (exit, or Ctrl-] to detach), the sandbox keeps running until its
timeout; with --rm it is deleted when the shell ends. While you are attached, its timeout is extended.

Examples:
  svc start                                 a shell in a new sandbox
  ID=$(svc start base -d)                   the id, for scripts
  svc start base -d --timeout 3600 -m task=17 -e LANG=C.UTF-8
  svc start base -d --auto-pause --auto-resume      paused at its timeout, resumed by the next request
  svc start base -d --auto-pause --auto-resume --idle-pause 60
  svc start base -d --no-internet --allow-out packages.example.org --allow-out '*.example.org'
  svc start base -d --output json           the full answer, tokens included`,
    )
    .run(async (template: string, options: never) => (await import("../sandbox/start.ts")).start(template, options));

  program
    .clientVerb("connect", "open a terminal in a sandbox, or reattach to one")
    .argument("<id>", "the sandbox")
    .option("--new", "start a new shell even if one is running")
    .option("--session <name>", "name of the shell to open or reattach to", "main")
    .option("-u, --user <name>", "the user inside the sandbox")
    .option("--detach-key <key>", "key that detaches, such as ctrl-], or none", "ctrl-]")
    .usage("[options] <id>")
    .addHelpText(
      "after",
      `
A shell that you left (Ctrl-], a closed window, a lost connection) keeps running; connect reattaches to it. Its output in
between is lost. Two terminals on one session share its screen. The exit code is the shell's. While you are attached, the
sandbox's timeout is extended.

Examples:
  svc connect $ID
  svc connect $ID --new --user root`,
    )
    .run(async (id: string, options: never) => (await import("../sandbox/connect.ts")).connect(id, options));

  program
    .clientVerb("exec", "run a command in a sandbox")
    .argument("<id>", "the sandbox")
    .argument("<command...>", "the command and its arguments, passed as they are, without a shell")
    .option("-u, --user <name>", "the user inside the sandbox")
    .option("-w, --cwd <directory>", "where to run it (default: the user's home)")
    .option("-e, --env <name=value>", "a variable; NAME alone takes this shell's value (repeat for more)", environment)
    .option("-t, --tty", "give the command a terminal")
    .option("-i, --interactive", "send typed input as well (without -i only a pipe or a file is sent as stdin)")
    .option("-n, --no-stdin", "send no stdin, for loops that read it themselves")
    .option("--timeout <seconds>", "kill the command after this long (exit code 124)", seconds)
    .usage("[options] <id> -- <command...>")
    .addHelpText(
      "after",
      `
Exit code: the command's; 128 plus the signal that ended it; 127 if the command does not exist; 124 after --timeout.
Ctrl-C and other signals go to the command; a second Ctrl-C kills it. The sandbox's timeout is not extended.

Examples:
  svc exec $ID -- python3 -c 'print(6*7)'
  svc exec $ID -- sh -c 'cd /tmp && ls | wc -l'
  tar c . | svc exec $ID -- tar x -C /home/user
  svc exec -t $ID -- vim notes.md`,
    )
    .run(async (id: string, command: string[], options: never) => (await import("../sandbox/exec.ts")).exec(id, command, options));

  program
    .clientVerb("forward", "forward ports of this machine to TCP ports inside a sandbox")
    .argument("<id>", "the sandbox")
    .argument("<ports...>", "PORT, LOCAL:PORT, or :PORT for a free port here")
    .option("--address <address>", "where to listen on this machine", "127.0.0.1")
    .option("--no-check", "start even if nothing listens in the sandbox yet")
    .option("--stdio", "one connection over stdin and stdout, for ssh's ProxyCommand")
    .usage("[options] <id> <ports...>")
    .addHelpText(
      "after",
      `
Runs until Ctrl-C. The server in the sandbox may listen on its loopback only. Prints a line for each port, with the address on
this machine. While connections are open, the sandbox's timeout is extended.

Examples:
  svc forward $ID 5432                      psql -h 127.0.0.1 -U postgres
  svc forward $ID 2222:22                   ssh -p 2222 user@127.0.0.1
  svc forward $ID :8080 :9090               free ports of this machine
  ssh -o ProxyCommand="svc forward $ID 22 --stdio" user@$ID`,
    )
    .run(async (id: string, ports: string[], options: never) => (await import("../sandbox/forward.ts")).forward(id, ports, options));

  program
    .clientVerb("list", "list the sandboxes")
    .alias("ls")
    .option("-m, --metadata <key=value>", "only those with this label (repeat for more)", pairs)
    .option("--template <name>", "only those of this template")
    .addOption(new Option("--state <state>", "only those in this state").choices(["running", "paused", "running,paused"]))
    .option("--tree", "show each sandbox below the one it was forked from")
    .option("-q, --quiet", "ids only")
    .addOption(outputOption())
    .addHelpText(
      "after",
      "\nExamples:\n  svc list\n  svc list --tree\n  svc list --state paused\n  svc list -m task=17 --output json\n  svc list -q | xargs svc delete",
    )
    .run(async (options: never) => (await import("../sandbox/list.ts")).list(options));

  program
    .clientVerb("timeout", "set when a sandbox ends, in seconds from now")
    .argument("<id>", "the sandbox")
    .argument("<seconds>", "from now; may be less than the time left", seconds)
    .usage("[options] <id> <seconds>")
    .addHelpText("after", "\nExample:\n  svc timeout $ID 3600")
    .run(async (id: string, secondsLeft: number, options: never) => (await import("../sandbox/life.ts")).timeout(id, secondsLeft, options));

  program
    .clientVerb("delete", "delete sandboxes with everything in them")
    .alias("rm")
    .argument("[ids...]", "the sandboxes")
    .option("--all", "every sandbox of the deployment")
    .option("-y, --yes", "do not ask before --all")
    .usage("[options] <ids...>")
    .addHelpText("after", "\nExamples:\n  svc delete $ID\n  svc delete --all --yes")
    .run(async (ids: string[], options: never) => (await import("../sandbox/delete.ts")).remove(ids, options));
}

export function addFileVerbs(program: Verb): void {
  const copyVerb = (name: string, summary: string): Verb =>
    program
      .clientVerb(name, summary)
      .argument("<id>", "the sandbox")
      .option("-f, --force", "replace existing regular files, and links by links")
      .option("--skip-links", "skip all symbolic links and special files")
      .option("--skip-outside-links", "skip symbolic links out of what is copied")
      .option("-u, --user <name>", "act as this user inside the sandbox")
      .option("-q, --quiet", "no progress, no summary");

  copyVerb("upload", "copy a file or a directory into a sandbox")
    .argument("<local>", "file or directory here; - reads stdin")
    .argument("[remote]", "path in the sandbox, relative to the user's home (default: the same name there)")
    .usage("[options] <id> <local> [remote]")
    .addHelpText(
      "after",
      `
Works like cp: into an existing directory (or a path that ends with /) under the same name, else to the path itself; LOCAL/.
copies the contents of the directory; directories are merged. All of it appears complete, or nothing does. Links below LOCAL
are copied as they are, with modes, times, holes and user attributes; names may have any bytes. Unlike cp, only regular files
are replaced, and links by links, and only with --force; devices, pipes and sockets are never written to or replaced; and
missing parent directories are created in the sandbox.

Examples:
  svc upload $ID data.csv                   to data.csv in the user's home
  svc upload $ID ./project /work            /work/project if /work exists, else /work
  svc upload $ID ./project/. /work --force
  echo hello | svc upload $ID - notes.txt`,
    )
    .run(async (id: string, local: string, remote: string | undefined, options: never) =>
      (await import("../copy/upload.ts")).upload(id, local, remote, options),
    );

  copyVerb("download", "copy a file or a directory out of a sandbox")
    .argument("<remote>", "path in the sandbox, relative to the user's home")
    .argument("[local]", "path here (default: the same name in this directory); - writes to stdout")
    .usage("[options] <id> <remote> [local]")
    .addHelpText(
      "after",
      `
Copies as svc upload does, but a link out of what is copied is refused: here it would lead to this machine's files
(--skip-outside-links skips those). The parent directory of the target must exist (a target that ends with / is created).
To write to a device or a pipe, use stdout: svc download $ID FILE - > PIPE

Examples:
  svc download $ID result.json
  svc download $ID /var/log ./logs
  svc download $ID notes.txt - | less`,
    )
    .run(async (id: string, remote: string, local: string | undefined, options: never) =>
      (await import("../copy/download.ts")).download(id, remote, local, options),
    );
}
