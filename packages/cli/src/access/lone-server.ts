// Finds a store master or an indexer of this machine's home, which serve a console of their own.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { homeDirectory, ownServerFiles } from "@svc/contract/home.ts";
import { localKey } from "./access.ts";
import { checkURL } from "./credentials.ts";
import { isLoopback } from "./own-node.ts";
import { startTicksOf } from "./up-state.ts";

export type LoneServer = { readonly url: string; readonly apiKey: string | undefined };

/** The variable of each server's own key, which signs in instead of the deployment's API key. */
const kinds = { master: "SVC_STORE_TOKEN", indexer: "SVC_INDEXER_API_KEY" } as const;

/** Returns the server at `url`, or, without one, the first that runs; undefined if there is none. */
export function loneServer(url: string | undefined, env: NodeJS.ProcessEnv = process.env): LoneServer | undefined {
  const home = homeDirectory(env);
  const found = Object.entries(kinds).map(([kind, variable]) => {
    const own = addressIn(join(home, ownServerFiles[kind as keyof typeof kinds]));
    return own !== undefined && (url === undefined || isSame(own, url)) ? { url: own, apiKey: env[variable] || localKey(env, home)?.apiKey } : undefined;
  });
  return found.find((each) => each !== undefined);
}

function addressIn(path: string): string | undefined {
  try {
    const { url, pid } = JSON.parse(readFileSync(path, "utf8")) as { url: string; pid: number };
    return "url" in checkURL(url) && startTicksOf(pid) !== undefined ? url : undefined;
  } catch {
    return undefined;
  }
}

function isSame(own: string, given: string): boolean {
  if (!("url" in checkURL(given))) return false;
  const [a, b] = [new URL(own), new URL(given)];
  return a.protocol === b.protocol && a.port === b.port && (a.hostname === b.hostname || (isLoopback(own) && isLoopback(given)));
}
