// `svc doctor --deployment`: asks every machine of a deployment at once, and prints one list of what is wrong.
import { parseArgs } from "node:util";
import { type HelpPage, renderHelp, usageOfPage } from "@svc/contract/help.ts";
import { plain, printJSON } from "@svc/contract/table.ts";
import { findAccess } from "../access/access.ts";
import { EXIT_FAILURE, EXIT_USAGE, UsageError } from "../output/complain.ts";
import { Asker } from "./ask.ts";
import { examineCluster } from "./cluster.ts";
import { examineIndexer, examineRouter } from "./engines.ts";
import { examineEtcd } from "./etcd.ts";
import { bySeverity, type Examined, merged, severities } from "./finding.ts";
import { type Flags, serverFlags, serversOf } from "./servers.ts";
import { examineAdmin, examineHealth, examineMasters } from "./store.ts";

const DEFAULT_SECONDS = 30;
const MAX_SECONDS = 600;

const help: HelpPage = {
  usage: ["svc doctor --deployment [options]"],
  about: "ask all machines of a deployment, and list what is wrong, each with the command that fixes it",
  options: [
    ["--gateway URL[,URL]", "gateways (default: the server of svc auth, else SVC_URL, else this machine's own)"],
    ["--etcd URL[,URL]", "members of etcd (default: SVC_CLUSTER_ETCD)"],
    ["--store URL[,URL]", "HTTP of store masters; one is enough (default: SVC_STORE_URL)"],
    ["--store-service URL[,URL]", "REST services of the store (default: SVC_STORE_SERVICE_URL)"],
    ["--store-admin URL", "the store's admin server (default: SVC_STORE_ADMIN_URL)"],
    ["--metadata URL[,URL]", "metadata servers (default: SVC_METADATA_URL)"],
    ["--indexer URL[,URL]", "cache indexers (default: SVC_INDEXER_URL)"],
    ["--router URL[,URL]", "routers (default: SVC_ROUTER_URL)"],
    ["--timeout SECONDS", `the time for all answers together (${DEFAULT_SECONDS})`],
    ["-o, --output FORMAT", "table or json (table)"],
    ["--json", "the same as --output json"],
  ],
  more: `Nodes are found through the gateways, and further masters through the one that is named. Without a flag or a variable, servers that
svc up runs on this machine are asked. Keys: as for all commands, SVC_STORE_TOKEN, SVC_STORE_ADMIN_TOKEN, SVC_ROUTER_ADMIN_KEY.
Exit code 1 if anything critical, or a warning, was found; notes alone are 0.`,
  examples: ["svc doctor --deployment", "svc doctor --deployment --gateway https://a.example.org,https://b.example.org --json"],
};

export async function main(argv: readonly string[]): Promise<number> {
  let flags: Flags;
  let isJSON: boolean;
  let seconds: number;
  try {
    const valued = Object.fromEntries([...serverFlags, "timeout"].map((name) => [name, { type: "string" as const }]));
    const options = { ...valued, output: { type: "string", short: "o" }, json: { type: "boolean" }, help: { type: "boolean", short: "h" } } as const;
    const { output, json, help: wantsHelp, ...rest } = parseArgs({ args: [...argv], options }).values as Record<string, string | boolean | undefined>;
    if (wantsHelp === true) {
      process.stdout.write(renderHelp(help));
      return 0;
    }
    if (output !== undefined && output !== "table" && output !== "json") throw new UsageError(`--output: expected table or json, got '${output}'`);
    flags = rest as Flags;
    isJSON = json === true || output === "json";
    seconds = secondsOf(flags["timeout"]);
  } catch (error) {
    process.stderr.write(`svc doctor --deployment: ${(error as Error).message}\n${usageOfPage(help, "svc doctor --deployment --help")}`);
    return EXIT_USAGE;
  }
  const { asked, findings } = await examine(flags, seconds);
  const sorted = bySeverity(findings);
  const isWrong = sorted.some(({ severity }) => severity !== "note");
  if (isJSON) printJSON({ ok: !isWrong, asked, findings: sorted });
  else process.stdout.write(rendered({ asked, findings: sorted }));
  return isWrong ? EXIT_FAILURE : 0;
}

function secondsOf(text: string | undefined): number {
  if (text === undefined) return DEFAULT_SECONDS;
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < 1 || value > MAX_SECONDS)
    throw new UsageError(`--timeout: expected whole seconds from 1 to ${MAX_SECONDS}, got '${text}'`);
  return value;
}

async function examine(flags: Flags, seconds: number): Promise<Examined> {
  const { env } = process;
  const asker = new Asker(seconds);
  const servers = serversOf(flags, env);
  const [first, ...further] = servers.gateway;
  const hasGatewayFlag = flags["gateway"] !== undefined;
  const access = await findAccess(hasGatewayFlag && first !== undefined ? { url: first } : {}, env);
  const urls = hasGatewayFlag ? [access.url, ...further] : [access.url];
  const each = (kind: keyof typeof servers, look: (url: string) => Promise<Examined>) => servers[kind].map(look);
  return merged(
    await Promise.all([
      examineCluster(asker, { urls, apiKey: access.apiKey }),
      ...each("etcd", (url) => examineEtcd(asker, url)),
      examineMasters(asker, servers["store master"], env["SVC_STORE_TOKEN"]),
      ...each("store service", (url) => examineHealth(asker, "store service", url)),
      ...each("store admin", (url) => examineAdmin(asker, url, env["SVC_STORE_ADMIN_TOKEN"])),
      ...each("metadata", (url) => examineHealth(asker, "metadata", url)),
      ...each("indexer", (url) => examineIndexer(asker, url)),
      ...each("router", (url) => examineRouter(asker, url, env["SVC_ROUTER_ADMIN_KEY"])),
    ]),
  );
}

function rendered({ asked, findings }: Examined): string {
  const width = Math.max(0, ...findings.map(({ where }) => plain(where).length));
  const lines = findings.flatMap(({ severity, where, says, fix }) => [
    `${severity.padEnd(8)}  ${plain(where).padEnd(width)}  ${plain(says)}`,
    `${" ".repeat(8)}  ${" ".repeat(width)}  fix: ${plain(fix)}`,
  ]);
  const counts = severities.map((severity) => `${findings.filter((each) => each.severity === severity).length} ${severity}`).join(", ");
  const answered = asked.filter((each) => each.answered).length;
  const kinds = [...Map.groupBy(asked, ({ kind }) => kind)].map(([kind, servers]) => `${kind} ${servers.length}`).join(", ");
  return [...lines, ...(lines.length === 0 ? [] : [""]), `${answered} of ${asked.length} servers answered (${kinds}): ${counts}`, ""].join("\n");
}
