// Finds the servers of a deployment: those that flags name, else those that variables name, else those that `svc up` started here.
import { homeDirectory } from "@svc/contract/home.ts";
import { checkURL } from "../access/credentials.ts";
import { isAlive, readUpState } from "../access/up-state.ts";
import { UsageError } from "../output/complain.ts";
import type { Kind } from "./finding.ts";

/** The flag, the variable of other commands with the same meaning, and the name in `up.json`. Gateways come from the access of the client. */
const sources = {
  gateway: { flag: "gateway", variable: undefined },
  etcd: { flag: "etcd", variable: "SVC_CLUSTER_ETCD" },
  "store master": { flag: "store", variable: "SVC_STORE_URL" },
  "store service": { flag: "store-service", variable: "SVC_STORE_SERVICE_URL" },
  "store admin": { flag: "store-admin", variable: "SVC_STORE_ADMIN_URL" },
  metadata: { flag: "metadata", variable: "SVC_METADATA_URL" },
  indexer: { flag: "indexer", variable: "SVC_INDEXER_URL" },
  router: { flag: "router", variable: "SVC_ROUTER_URL" },
} as const satisfies Readonly<Partial<Record<Kind, { flag: string; variable: string | undefined }>>>;
export type FoundKind = keyof typeof sources;
export const serverFlags = Object.values(sources).map(({ flag }) => flag);

export type Flags = Readonly<Record<string, string | undefined>>;

export function serversOf(flags: Flags, env: NodeJS.ProcessEnv = process.env): Readonly<Record<FoundKind, readonly string[]>> {
  const own = (readUpState(homeDirectory(env))?.servers ?? []).filter(isAlive);
  const found = Object.entries(sources).map(([kind, { flag, variable }]) => {
    const given = flags[flag];
    if (given !== undefined) return [kind, urlsIn(given, `--${flag}`)];
    const named = variable === undefined ? undefined : env[variable];
    if (named) return [kind, urlsIn(named, variable ?? "")];
    return [kind, own.filter(({ name }) => name === kind).map(({ url }) => url)];
  });
  return Object.fromEntries(found) as Record<FoundKind, readonly string[]>;
}

function urlsIn(text: string, where: string): string[] {
  return text
    .split(",")
    .map((each) => each.trim())
    .filter((each) => each !== "")
    .map((each) => {
      const checked = checkURL(each);
      if ("wrong" in checked) throw new UsageError(`${where}: ${checked.wrong}`);
      return checked.url;
    });
}
