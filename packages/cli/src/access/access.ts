// Decides which server a command uses, and with which key: saved credentials, then variables, then this machine's own node.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { DEFAULT_BASE_URL, SvcClient } from "@svc/contract/client.ts";
import { Failure, fail } from "@svc/contract/failures.ts";
import { homeDirectory } from "@svc/contract/home.ts";
import { UsageError } from "../output/complain.ts";
import { checkURL, credentialsPath, readCredentials } from "./credentials.ts";
import { isLoopback, isNodeAt, runningNode } from "./own-node.ts";
import { readUpState } from "./up-state.ts";

const WITHHELD_ADVICE = "start the node with ./svc up, or name a server and its key with svc auth, or in SVC_URL and SDK_API_KEY";
/** The client's own variable, and that of the servers, which is often set in a shell already. */
export const KEY_VARIABLES = ["SDK_API_KEY", "SVC_API_KEY"] as const;

export type AccessOptions = { readonly url?: string };
export type Access = {
  readonly url: string;
  readonly apiKey: string | undefined;
  readonly keyFrom: string;
  /** The reason why this machine's own key is not sent to that server. */
  readonly withheld?: string;
};

/** Runs `use` with a client; authentication errors then name the server and the key that were used. */
export async function withClient<T>(options: AccessOptions, use: (client: SvcClient) => Promise<T>): Promise<T> {
  return await withAccess(options, (_, client) => use(client));
}

/** Same as `withClient`, for requests that the client has no method for. */
export async function withAccess<T>(options: AccessOptions, use: (access: Access, client: SvcClient) => Promise<T>): Promise<T> {
  const access = await findAccess(options);
  const client = new SvcClient({ baseURL: access.url, apiKey: access.apiKey, onMissingNodes: warnOnce() });
  try {
    if (access.apiKey === undefined) {
      await client.health();
      fail("UNAUTHENTICATED", "");
    }
    return await use(access, client);
  } catch (error) {
    throw explain(error, access);
  }
}

/** Warns once on stderr, even if a list has many pages. */
function warnOnce(): (nodes: readonly string[]) => void {
  let named = "";
  return (nodes) => {
    const text = nodes.join(", ");
    if (text === named) return;
    named = text;
    process.stderr.write(`svc: warning: ${text} does not answer; what it holds is missing here (svc nodes list)\n`);
  };
}

export async function findAccess({ url }: AccessOptions, env: NodeJS.ProcessEnv = process.env): Promise<Access> {
  const wanted = url === undefined ? undefined : validURL(url, "--url");
  const saved = await readCredentials();
  // A saved key is sent only to the server it was saved with.
  if (saved !== undefined && (wanted === undefined || wanted === saved.url)) return { url: saved.url, apiKey: saved.apiKey, keyFrom: credentialsPath(env) };
  const fromEnv = env["SVC_URL"] ? validURL(env["SVC_URL"], "SVC_URL") : undefined;
  const variable = KEY_VARIABLES.find((name) => env[name]);
  // The key of the E2B SDKs may belong to a hosted service, so it is sent only to the server that E2B_API_URL names.
  const sdkKey = env["E2B_API_KEY"] || undefined;
  const ofSDKs = sdkKey !== undefined && env["E2B_API_URL"] ? validURL(env["E2B_API_URL"], "E2B_API_URL") : undefined;
  const home = homeDirectory(env);
  const server = wanted ?? fromEnv ?? (variable === undefined ? ofSDKs : undefined) ?? localURL(home);
  const hasOwnKey = variable !== undefined && server === fromEnv;
  if (server === ofSDKs && !hasOwnKey) return { url: server, apiKey: sdkKey, keyFrom: "E2B_API_KEY" };
  if (variable !== undefined) return { url: server, apiKey: env[variable], keyFrom: variable };
  const own = ownAccess(server, home, env);
  if (own.apiKey !== undefined || sdkKey === undefined) return own;
  const where = ofSDKs === undefined ? "set E2B_API_URL as well" : `which is ${ofSDKs}`;
  return { ...own, withheld: `${own.withheld === undefined ? "" : `${own.withheld}; `}E2B_API_KEY is sent to the server in E2B_API_URL alone: ${where}` };
}

/** This machine's own key is sent only to its own node, never to another process that listens on the port. */
function ownAccess(server: string, home: string, env: NodeJS.ProcessEnv): Access {
  const none = { url: server, apiKey: undefined, keyFrom: "" };
  const key = localKey(env, home);
  const node = runningNode(home);
  if (key !== undefined && node !== undefined && isNodeAt(node, server)) return { url: node.address, apiKey: key.apiKey, keyFrom: key.from };
  if (key === undefined || !isLoopback(server)) return none;
  const where = node === undefined ? "which is not running" : `which is at ${node.url}`;
  return { ...none, withheld: `the API key from ${key.from} is sent to the node of ${home} alone, ${where}` };
}

function validURL(text: string, where: string): string {
  const checked = checkURL(text);
  if ("wrong" in checked) throw new UsageError(`${where}: ${checked.wrong}`);
  return checked.url;
}

/** The URL of this machine's running node, else the one that `svc up` recorded, else the default. */
function localURL(home: string): string {
  return runningNode(home)?.url ?? readUpState(home)?.servers.find(({ name }) => name === "node" || name === "gateway")?.url ?? DEFAULT_BASE_URL;
}

/** Finds the key as a node of this machine does, from the same sources in the same order; undefined if none is readable. */
export function localKey(env: NodeJS.ProcessEnv = process.env, home = homeDirectory(env)): { apiKey: string; from: string } | undefined {
  if (env["SVC_API_KEY"]) return { apiKey: env["SVC_API_KEY"], from: "SVC_API_KEY" };
  for (const path of ["/run/secrets/api-key", join(home, "secrets", "api-key")]) {
    try {
      return { apiKey: readFileSync(path, "utf8").trim(), from: path };
    } catch {
      // The file is absent or not readable by this user.
    }
  }
  return undefined;
}

function explain(error: unknown, { url, keyFrom, withheld }: Access): unknown {
  // Failures with a sandboxID come from inside a sandbox, so the server and the key are not their cause.
  if (!(error instanceof Failure) || error.details["sandboxID"] !== undefined) return error;
  if (error.name === "SERVER_UNREACHABLE" && error.details["outcome"] === undefined && error.details["tls"] === undefined) {
    const reason = /\(([^()]*)\)/.exec(error.message)?.[1] ?? error.message;
    return new Failure(error.name, `no server answers at ${url} (${reason}); start one with ./svc up, or name another with svc auth`, { cause: error });
  }
  if (error.name !== "UNAUTHENTICATED") return error;
  const missing =
    withheld === undefined ? `no API key for ${url}: run svc auth, or set SDK_API_KEY` : `no API key may be sent to ${url}: ${withheld}; ${WITHHELD_ADVICE}`;
  // The server says why only to the holder of a named key that was valid once.
  const { reason } = error.details;
  const why = reason === undefined || reason === "unknown" ? "" : `: ${error.message}`;
  const text = keyFrom === "" ? missing : `${url} refuses the API key from ${keyFrom}${why}; run svc auth with the right one`;
  return new Failure(error.name, text, { cause: error });
}
