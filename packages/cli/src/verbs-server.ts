// The verbs around servers: auth, up, down, openapi.
import { Option } from "commander";
import { several, type Verb } from "./verb.ts";

export function addServerVerbs(program: Verb): void {
  program
    .verb("auth", "save the server's URL and the API key")
    .option("--no-check", "save without asking the server whether it takes the key")
    .option("--show", "tell which server and which key commands would use, and save nothing")
    .addHelpText(
      "after",
      `
Asks for both; without a terminal it reads two lines from stdin, the URL (empty: http://localhost:8000) and the key.
They are saved in ~/.config/svc/credentials (TOML: url, api_key; mode 0600). Commands take saved credentials first, then
SDK_API_KEY with SVC_URL, and on the server's own machine the key of that server where it may be read.

Examples:
  svc auth
  printf '%s\\n' https://sandboxes.example.org "$KEY" | svc auth`,
    )
    .run(async (options: never) => (await import("./auth.ts")).auth(options));

  program
    .verb("up", "run all servers of this machine")
    .option("-d, --detach", "return when they are ready; svc down stops them")
    .option("--home <directory>", "where servers keep their state (default: SVC_HOME, else by user)")
    .option("--without <name>", "leave a server out: node, metadata or indexer (repeat for more)", several)
    // What --detach starts; no option for people.
    .addOption(new Option("--background").hideHelp())
    .allowUnknownOption()
    .argument("[flags...]", "passed on to the servers, for example --listen 127.0.0.1:8000")
    .usage("[options] [server flags]")
    .addHelpText(
      "after",
      `
Runs the node (sandboxes, port 8000), the metadata server of transfer engines (8081) and the cache indexer (13333).
In the foreground until Ctrl-C or SIGTERM. A server that crashes is started again; one that cannot start ends them all.
Their logs are JSON lines in $SVC_HOME/logs. Sandboxes outlive their server: the next svc up takes them over.

Server flags: the node's own (--listen, --runtime, --log-level, --brand) go to the node; --section.key VALUE and
--config FILE go to every server, each of which takes the sections it knows. svc node --help and the like list them.

Examples:
  svc up
  svc up -d --listen 127.0.0.1:8000
  svc up -d --indexer.listen 127.0.0.1:14333 --without metadata`,
    )
    .run(async (flags: string[], options: never) => (await import("./up.ts")).up(flags, options));
  program
    .verb("down", "stop what svc up -d started; sandboxes live on")
    .option("--home <directory>", "the home of the servers to stop")
    .option("--sandboxes", "delete all sandboxes first")
    .run(async (options: never) => (await import("./down.ts")).down(options));

  program.verb("openapi", "print the API as an OpenAPI 3.1 document").run(async () => (await import("./openapi.ts")).printOpenAPI());
}
