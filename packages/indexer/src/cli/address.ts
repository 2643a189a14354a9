// Finds the indexer that a command talks to: the one that is named, else this machine's own, wherever it listens.
import { fail } from "@svc/contract/failures.ts";
import { homeDirectory } from "@svc/contract/home.ts";
import { ownServer } from "@svc/kit/own-server.ts";

const DEFAULT_URL = "http://localhost:13333";

/** @throws SERVER_UNREACHABLE if a home is named on which none runs: the default port may belong to another home. */
export function indexerURL(given: string | undefined, env: NodeJS.ProcessEnv = process.env): string {
  const named = given ?? (env["SVC_INDEXER_URL"] || undefined);
  if (named !== undefined) return named;
  const home = homeDirectory(env);
  const own = ownServer(home, "indexer");
  if (own === undefined && home !== homeDirectory({}))
    fail("SERVER_UNREACHABLE", `no cache indexer runs on ${home} (SVC_HOME): start it with ./svc up, or name another one with --url URL`);
  return own?.url ?? DEFAULT_URL;
}
