// Calls the store's admin server for `svc store migrations` and `svc store devices`.
import { type FailureName, fail } from "@svc/contract/failures.ts";
import { homeDirectory } from "@svc/contract/home.ts";
import { tokenFrom } from "../access/keys.ts";
import { ownAdmin } from "../rpc/own-servers.ts";
import type { Arguments } from "./arguments.ts";

const DEFAULT_URL = "http://127.0.0.1:18080";
const HTTP_MS = 60_000;
const refusals: Readonly<Record<number, FailureName>> = {
  400: "INVALID_REQUEST",
  401: "UNAUTHENTICATED",
  404: "STORE_KEY_NOT_FOUND",
  409: "STORE_CONFLICT",
  429: "TOO_MANY_REQUESTS",
};

/** @throws INVALID_REQUEST where another store is named: this machine's admin server does not serve that store. */
function adminUrl(args: Arguments): string {
  const given = args.text("admin") ?? (process.env["SVC_STORE_ADMIN_URL"] || undefined);
  if (given === undefined && !args.isOwn)
    fail(
      "INVALID_REQUEST",
      `--admin: expected http://HOST:PORT, the admin server of the store at ${args.master || args.url}, got nothing; SVC_STORE_ADMIN_URL names it, too`,
    );
  return (given ?? ownAdmin(homeDirectory())?.url ?? DEFAULT_URL).replace(/\/+$/, "");
}

/** Returns the answer's JSON. @throws SERVER_UNREACHABLE, and a failure with the server's message for any answer that is not a success. */
export async function askAdmin<T>(args: Arguments, method: "GET" | "POST", path: string, body?: object): Promise<T> {
  const url = adminUrl(args);
  const file = args.text("admin-token-file") ?? "";
  const token = file === "" ? process.env["SVC_STORE_ADMIN_TOKEN"] || undefined : tokenFrom("--admin-token-file", file, {});
  let answer: Response;
  try {
    answer = await fetch(`${url}${path}`, {
      method,
      headers: token === undefined ? {} : { Authorization: `Bearer ${token}` },
      signal: AbortSignal.timeout(HTTP_MS),
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  } catch (error) {
    const cause = (error as { cause?: { message?: string } }).cause?.message ?? (error as Error).message;
    return fail("SERVER_UNREACHABLE", `no admin server answers at ${url}: ${cause}; use --admin or SVC_STORE_ADMIN_URL for another one`, { cause: error });
  }
  const said = await answer.text();
  if (answer.ok) return JSON.parse(said) as T;
  return fail(refusals[answer.status] ?? "STORE_REFUSED", `the admin server at ${url} answered ${answer.status}: ${messageOf(said)}`);
}

function messageOf(said: string): string {
  try {
    return (JSON.parse(said) as { error?: string }).error ?? said;
  } catch {
    return said.slice(0, 300);
  }
}
