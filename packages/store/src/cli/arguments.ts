// The command line of `svc store`, and the master that it addresses.
import { parseArgs } from "node:util";
import { type FailureName, fail } from "@svc/contract/failures.ts";
import { homeDirectory } from "@svc/contract/home.ts";
import { type OutputFormat, outputFormat, printJSON, printTable } from "@svc/contract/table.ts";
import { openEtcd } from "@svc/kit/etcd/client.ts";
import { tokenFrom } from "../access/keys.ts";
import { type MasterAddress, masterAddress } from "../client/session/address.ts";
import { DEFAULT_CLUSTER, etcdMembers, isEtcdAddress } from "../client/session/discovery.ts";
import { StoreClient } from "../client/store-client.ts";
import { knownFrom, leadershipKey } from "../ha/leadership.ts";
import { ownMaster } from "../rpc/own-servers.ts";

const DEFAULT_RPC_PORT = 50_051;
const DEFAULT_HTTP_PORT = 9003;
const DEFAULT_RPC = `127.0.0.1:${DEFAULT_RPC_PORT}`;
const DEFAULT_URL = `http://127.0.0.1:${DEFAULT_HTTP_PORT}`;
const HTTP_MS = 60_000;

export type VerbFlags = Readonly<Record<string, { readonly type: "string" | "boolean" }>>;
export type Arguments = {
  readonly verb: string;
  readonly positionals: readonly string[];
  /** Returns the value of a flag. */
  text(name: string): string | undefined;
  has(name: string): boolean;
  readonly isJSON: boolean;
  /** The address of the master's RPC; "" where only its HTTP is named and the RPC cannot be derived. */
  readonly master: string;
  /** The address of the master's HTTP; "" for the HTTP of the current leader, or where it cannot be derived from the RPC that is named. */
  readonly url: string;
  /** True for this machine's own store, whose other servers are known as well. */
  readonly isOwn: boolean;
  readonly cluster: string;
  /** The tenant of the keys; "" for verbs that have none. */
  readonly tenant: string;
  readonly brand: string;
  readonly metadata: string;
  /** The access key for a master that requires one. */
  readonly token: string | undefined;
};

const shared = {
  master: { type: "string" },
  url: { type: "string" },
  cluster: { type: "string" },
  brand: { type: "string" },
  metadata: { type: "string" },
  "token-file": { type: "string" },
  output: { type: "string", short: "o" },
} as const;

export function readArguments(verb: string, argv: readonly string[], own: VerbFlags): Arguments {
  const parsed = parsedArguments(verb, argv, { ...shared, ...own });
  const text = (name: string) => (typeof parsed.values[name] === "string" ? (parsed.values[name] as string) : undefined);
  const output = text("output");
  if (output !== undefined && output !== "json" && output !== "table")
    fail("INVALID_REQUEST", `--output: expected table or json, got ${JSON.stringify(output)}`);
  const { env } = process;
  const { master, url, isOwn } = storeOf(text("master") ?? env["SVC_STORE_MASTER"], text("url") ?? env["SVC_STORE_URL"]);
  return {
    verb,
    positionals: parsed.positionals,
    text,
    has: (name) => parsed.values[name] === true,
    isJSON: outputFormat(output as OutputFormat | undefined) === "json",
    master,
    url,
    isOwn,
    cluster: text("cluster") ?? DEFAULT_CLUSTER,
    tenant: text("tenant") ?? "",
    brand: text("brand") ?? "svc",
    metadata: text("metadata") ?? "P2PHANDSHAKE",
    token: tokenFrom("--token-file", text("token-file") ?? "", env),
  };
}

/** Parses like parseArgs, but reports invalid flags in our own wording. */
function parsedArguments(verb: string, argv: readonly string[], options: VerbFlags): { values: Record<string, unknown>; positionals: string[] } {
  const { tokens, positionals } = parseArgs({ args: [...argv], options, allowPositionals: true, strict: false, tokens: true });
  const values: Record<string, unknown> = {};
  for (const token of tokens) {
    if (token.kind !== "option") continue;
    const { name, rawName, value, inlineValue } = token;
    const refuse = (what: string): never => fail("INVALID_REQUEST", `${rawName}: ${what}; svc store ${verb} --help lists its flags`);
    const { type } = Object.hasOwn(options, name) ? (options[name] as VerbFlags[string]) : refuse(`svc store ${verb} has no such flag`);
    // A negative number is a value, which the flag's own check refuses.
    const isFlag = inlineValue === false && /^-[^\d]/.test(value);
    if (type === "boolean") values[name] = value === undefined ? true : refuse(`expected no value, got ${JSON.stringify(value)}`);
    else values[name] = value === undefined || isFlag ? refuse(`expected a value, got ${value ?? "nothing"}`) : value;
  }
  return { values, positionals };
}

/**
 * Returns the two addresses of one store. If one is given, the other is derived only for this machine's own master and for a pair of default ports;
 * otherwise it stays "", since a guess could name another store.
 */
function storeOf(master: string | undefined, url: string | undefined): Pick<Arguments, "master" | "url" | "isOwn"> {
  const found = ownMaster(homeDirectory());
  // Skip the default ports with another home: the master that listens there may belong to the default home.
  if (found === undefined && master === undefined && url === undefined && homeDirectory() !== homeDirectory({})) return { master: "", url: "", isOwn: true };
  const own = found ?? { rpc: DEFAULT_RPC, url: DEFAULT_URL };
  const bare = url?.replace(/\/+$/, "");
  if (master !== undefined && isEtcdAddress(master)) return { master, url: bare ?? "", isOwn: false };
  const isOwn = (master === undefined || sameMaster(master, own.rpc)) && (bare === undefined || bare === own.url);
  if (isOwn) return { master: master ?? own.rpc, url: bare ?? own.url, isOwn };
  return { master: master ?? rpcBeside(bare ?? ""), url: bare ?? httpBeside(master ?? ""), isOwn };
}

function sameMaster(one: string, other: string): boolean {
  const [a, b] = [masterAddress(one), masterAddress(other)];
  const local = ({ host }: MasterAddress) => (host === "localhost" ? "127.0.0.1" : host);
  return a.port === b.port && local(a) === local(b);
}

function httpBeside(master: string): string {
  const { host, port } = masterAddress(master);
  return port === DEFAULT_RPC_PORT ? `http://${host.includes(":") ? `[${host}]` : host}:${DEFAULT_HTTP_PORT}` : "";
}

function rpcBeside(url: string): string {
  const { hostname, port } = parsedUrl(url);
  return Number(port) === DEFAULT_HTTP_PORT ? `${hostname}:${DEFAULT_RPC_PORT}` : "";
}

/** @throws INVALID_REQUEST where only a master's RPC is named and its HTTP cannot be derived. */
async function urlOf(args: Arguments): Promise<string> {
  if (args.url !== "") return args.url;
  if (isEtcdAddress(args.master)) return leaderUrl(args);
  if (args.master === "") return noMaster();
  return fail(
    "INVALID_REQUEST",
    `--url: expected http://HOST:PORT, the HTTP of the master at ${args.master} (its --listen), got nothing; SVC_STORE_URL names it, too`,
  );
}

/** Fails for a home without a master when no address is given. */
function noMaster(): never {
  fail(
    "SERVER_UNREACHABLE",
    `no store master runs on ${homeDirectory()} (SVC_HOME): start it with ./svc up, or name another store with --master HOST:PORT or --url URL`,
  );
}

/** @throws SERVER_UNREACHABLE where no master leads. */
async function leaderUrl({ master, brand, cluster }: Arguments): Promise<string> {
  const etcd = openEtcd({ endpoints: etcdMembers(master) });
  try {
    const key = leadershipKey(brand, cluster);
    return (
      knownFrom(await etcd.get(key))?.leadership.leader.http ??
      fail("SERVER_UNREACHABLE", `no master leads cluster ${cluster}: etcd has no key ${key}; start a master with that cluster_id, or check --cluster`)
    );
  } finally {
    await etcd.close();
  }
}

function parsedUrl(url: string): URL {
  try {
    return new URL(url);
  } catch {
    return fail("INVALID_REQUEST", `--url: expected http://HOST:PORT, got ${JSON.stringify(url)}`);
  }
}

/** Checks that exactly these operands are given, in this order. */
export function operands(args: Arguments, ...names: readonly string[]): string[] {
  const { positionals, verb } = args;
  const required = names.filter((name) => !name.startsWith("["));
  const empty = positionals.indexOf("");
  if (positionals.length >= required.length && positionals.length <= names.length && empty === -1) return [...positionals];
  const given = positionals.length === 0 ? "nothing" : positionals.map((word) => JSON.stringify(word)).join(" ");
  const expected = names.length === 0 ? "no more words" : names.join(" ");
  const rule = empty === -1 ? "" : `; ${names[empty]?.replace(/\W/g, "") ?? "a word"} has one character or more`;
  return fail("INVALID_REQUEST", `expected ${expected}, got ${given}${rule}; svc store ${verb} --help shows how`);
}

export function wholeNumber(args: Arguments, name: string, otherwise: number, most: number, least = 1): number {
  const text = args.text(name);
  if (text === undefined) return otherwise;
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= least && value <= most) return value;
  return fail("INVALID_REQUEST", `--${name}: expected a whole number from ${least} to ${most}, got ${JSON.stringify(text)}`);
}

/** Opens a client that offers no memory and lives for one command. */
export async function openClient({ master, url, cluster, brand, tenant, metadata, token }: Arguments): Promise<StoreClient> {
  if (master === "" && url === "") noMaster();
  if (master === "")
    fail("INVALID_REQUEST", `--master: expected HOST:PORT, the RPC of the master at ${url} (its --rpc_port), got nothing; SVC_STORE_MASTER names it, too`);
  return StoreClient.open({
    master,
    clusterID: cluster,
    brand,
    tenant,
    metadata,
    token,
    localHostname: "127.0.0.1",
    executesTasks: false,
    leasesAhead: false,
    joinMs: 2000,
  });
}

const STANDBY = " (a standby, or a master that is starting: svc store leader shows who leads)";
const refusals: Readonly<Record<number, FailureName>> = { 401: "UNAUTHENTICATED", 403: "ACCESS_DENIED", 503: "SERVER_UNREACHABLE" };

/** @throws SERVER_UNREACHABLE, and a failure with the master's message for an answer that is not a success. */
export async function ask(args: Arguments, path: string, init: RequestInit = {}): Promise<Response> {
  let answer: Response;
  const url = await urlOf(args);
  const headers = { ...(init.headers as Record<string, string> | undefined), ...(args.token === undefined ? {} : { Authorization: `Bearer ${args.token}` }) };
  try {
    answer = await fetch(`${url}${path}`, { ...init, headers, signal: AbortSignal.timeout(HTTP_MS) });
  } catch (error) {
    const cause = (error as { cause?: { message?: string } }).cause?.message ?? (error as Error).message;
    return fail("SERVER_UNREACHABLE", `no master answers at ${url}: ${cause}; use --url or SVC_STORE_URL for another one`, { cause: error });
  }
  if (answer.ok || answer.status === 404) return answer;
  const said = await answer.text();
  return fail(
    refusals[answer.status] ?? "STORE_REFUSED",
    `the master at ${url} answered ${answer.status}: ${messageOf(said)}${answer.status === 503 ? STANDBY : ""}`,
  );
}

/** Returns the tenant as the first parameter of a query, for paths that look at keys. */
export const tenantQuery = ({ tenant }: Arguments): string => (tenant === "" ? "" : `tenant_id=${encodeURIComponent(tenant)}&`);

const messageOf = (said: string): string => {
  try {
    return (JSON.parse(said) as { error_message?: string }).error_message ?? said;
  } catch {
    return said.slice(0, 300);
  }
};

export function print(args: Arguments, value: unknown, columns: readonly string[], rows: readonly (readonly string[])[]): void {
  if (args.isJSON) printJSON(value);
  else printTable(columns, rows);
}

/** Shows the current progress on one line of a terminal's stderr; prints nothing elsewhere. */
export function progress(line: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r${line}\x1b[K`);
}
