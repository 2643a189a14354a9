// The verbs for servers and access to them: auth, up, down, openapi.
import { Option } from "commander";
import { count, outputOption, several, type Verb } from "./verb.ts";

/** The limit is low because each node is a process with its own pool. */
const MAX_NODES = 9;

export function addServerVerbs(program: Verb): void {
  program
    .verb("auth", "save the server's URL and the API key")
    // Arguments are rejected with a message that says what to do instead.
    .argument("[words...]")
    .usage("[options]")
    .option("--no-check", "save without checking that the server accepts the key")
    .option("--export", "print the server and key for the E2B SDKs, as a shell's variables, and save nothing")
    .option("--show [form]", "show which server and key commands would use, and save nothing; e2b: print the key as old E2B SDKs want it")
    .addHelpText(
      "after",
      `
Asks for both; without a terminal it reads two lines from stdin, the URL (empty: http://localhost:8000) and the key.
They are saved in ~/.config/svc/credentials (TOML: url, api_key; mode 0600). Commands take saved credentials first, then
SDK_API_KEY (or SVC_API_KEY) with SVC_URL, then E2B_API_KEY with E2B_API_URL, then, on the server's own machine, that server's
key if they may read it. E2B_API_KEY goes to the server in E2B_API_URL and to no other.

Examples:
  svc auth
  eval "$(svc auth --export)"
  printf '%s\\n' https://sandboxes.example.org "$KEY" | svc auth`,
    )
    .run(async (args: string[], options: never) => (await import("../access/auth.ts")).auth(args, options));

  program
    .verb("up", "run all servers of this machine")
    .option("-d, --detach", "return when they are ready; svc down stops them")
    .option("--home <directory>", "where the servers keep their state (default: SVC_HOME, else /var/lib/svc for root, ~/.local/share/svc for others)")
    .option("--without <name>", "leave a server out: node, metadata, store-master, store-service, store-admin or indexer (repeat for more)", several)
    .option("--only <name>", "run these servers alone, by the same names (repeat for more)", several)
    .option("--nodes <number>", "a deployment to try out: this many nodes behind a gateway, with etcd (default: 1, a node without a gateway)", count(MAX_NODES))
    // Set by --detach for the process that it starts; hidden from the help.
    .addOption(new Option("--background").hideHelp())
    .allowUnknownOption()
    .argument("[flags...]", "passed to the servers, for example --listen 127.0.0.1:8000")
    .usage("[options] [server flags]")
    .addHelpText(
      "after",
      `
Runs the node (sandboxes, port 8000), the metadata server of transfer engines (8081), the cache store's master (RPC 50051,
HTTP 9003), its service (this machine's memory, 8080) and admin server (18080), and the cache indexer (13333).
Without -d it runs until Ctrl-C or SIGTERM. A server that crashes is restarted; one that cannot start stops them all. Their
logs are JSON lines in $SVC_HOME/logs. Sandboxes outlive their server: the next svc up takes them over.

With --nodes N a gateway takes the node's port, in front of N nodes on free ports, with etcd as a child process and a directory
as object storage; the other servers run on their usual ports. Try svc nodes list, svc move $ID, svc nodes drain.

Server flags: --listen, --runtime, --log-level and --brand are the node's; --section.key VALUE goes to the server with that
section, --config FILE to every server. svc node --help, svc indexer --help and so on list them.

Examples:
  svc up
  svc up -d --listen 127.0.0.1:8000
  svc up -d --nodes 3 --home ~/cluster
  svc up -d --only node
  svc up -d --indexer.listen 127.0.0.1:14333 --without metadata`,
    )
    .run(async (flags: string[], options: never) => (await import("../servers/up.ts")).up(flags, options));
  program
    .verb("down", "stop what svc up -d started; sandboxes keep running")
    .option("--home <directory>", "the home of the servers to stop")
    .option("--sandboxes", "delete all sandboxes first, without asking")
    .option("-y, --yes", "accepted as for svc delete; nothing is asked in any case")
    .addHelpText("after", "\nExamples:\n  svc down\n  svc down --sandboxes")
    .run(async (options: never) => (await import("../servers/down.ts")).down(options));

  program
    .clientVerb("gc", "remove what the retention rules of the settings name, and what nobody needs")
    .option("--dry-run", "say what the rules would remove, and change nothing")
    .addOption(outputOption())
    .addHelpText(
      "after",
      `
The rules are the settings retention.snapshots, retention.paused and retention.builds of each node; nodes also apply them at
an interval. What runs, what the pool needs and what a tag names is never removed.

Examples:
  svc gc --dry-run
  svc gc`,
    )
    .run(async (options: never) => (await import("../servers/gc.ts")).gc(options));

  program
    .clientVerb("console", "open the server's console in a browser, signed in")
    .option("--read-only", "the browser changes nothing and sees no content of sandboxes")
    .option("--no-open", "only print the link")
    .addHelpText(
      "after",
      `
Prints a link that signs in one browser, once and within ten minutes, and opens it where there is a desktop. The console is
at /console of the node and of the gateway, and takes the API key as well. A store master and an indexer serve one, too: the
link is theirs where no node of this home runs, or with their address as --url.

Examples:
  svc console
  svc console --url http://localhost:13333
  svc console --read-only --no-open`,
    )
    .run(async (options: never) => (await import("../servers/console.ts")).openConsole(options));

  program
    .verb("openapi", "print the API as an OpenAPI 3.1 document")
    .addHelpText("after", "\nExamples:\n  svc openapi > svc-openapi.json")
    .run(async () => (await import("../shell/openapi.ts")).printOpenAPI());

  program
    .verb("sbom", "print the software bill of materials of this installation, in CycloneDX 1.6")
    .option("--output <file>", "write it there instead")
    .option("--no-system", "leave the packages of the operating system out")
    .addHelpText(
      "after",
      `
Lists Node, the npm packages, the Go modules of runsc and envd, and the installed Debian packages. Images have theirs in /opt/svc/sbom.cdx.json.

Examples:
  svc sbom --output sbom.cdx.json
  svc sbom --no-system | jq -r '.components[].purl'`,
    )
    .run(async (options: never) => (await import("../sbom/sbom.ts")).printSbom(options));
}
