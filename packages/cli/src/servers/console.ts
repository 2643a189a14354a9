// `svc console`: opens the server's console in a browser, signed in by a link that works once.
import { spawn } from "node:child_process";
import { type CallOptions, call } from "@svc/contract/call.ts";
import { createConsoleLink } from "@svc/contract/console-link.ts";
import { fail } from "@svc/contract/failures.ts";
import { type AccessOptions, findAccess, withAccess } from "../access/access.ts";
import { type LoneServer, loneServer } from "../access/lone-server.ts";
import { remark } from "../output/complain.ts";

const OPEN_MS = 10_000;

type Options = AccessOptions & { readOnly?: true; open: boolean };

/** Prints the link on stdout, and opens it where this session has a desktop. */
export async function openConsole({ url, readOnly, open }: Options): Promise<number> {
  const hasNode = url === undefined && (await findAccess({})).apiKey !== undefined;
  const lone = hasNode ? undefined : await withKey(loneServer(url), url);
  const show = async (options: CallOptions) => {
    const { link, seconds } = await consoleLink(options, readOnly === true);
    process.stdout.write(`${link}\n`);
    remark(`It signs in one browser, within ${Math.round(seconds / 60)} minutes.`);
    if (open && (process.env["DISPLAY"] || process.env["WAYLAND_DISPLAY"]))
      spawn("xdg-open", [link], { stdio: "ignore", detached: true })
        .on("error", () => {})
        .unref();
    return 0;
  };
  if (lone?.apiKey !== undefined) return await show({ baseURL: lone.url, apiKey: lone.apiKey });
  if (url !== undefined && (await findAccess({ url })).apiKey === undefined)
    fail("UNAUTHENTICATED", `no API key for ${url}: set SDK_API_KEY to the key that signs in there, or SVC_HOME to the home of that server`);
  return await withAccess(url === undefined ? {} : { url }, (access) => show({ baseURL: access.url, apiKey: access.apiKey }));
}

/** A master or an indexer that has no key yet generates one when somebody first opens its console. */
async function withKey(found: LoneServer | undefined, url: string | undefined): Promise<LoneServer | undefined> {
  if (found === undefined || found.apiKey !== undefined) return found;
  const page = await fetch(new URL("/console", found.url), { signal: AbortSignal.timeout(OPEN_MS) }).catch(() => undefined);
  await page?.arrayBuffer();
  return loneServer(url);
}

/** The host name `localhost` is the one that a browser also finds a sandbox's ports below. */
export async function consoleLink(options: CallOptions, readOnly: boolean): Promise<{ readonly link: string; readonly seconds: number }> {
  const { path, seconds } = await call(createConsoleLink, readOnly ? { readOnly } : {}, options);
  const base = new URL(options.baseURL);
  if (base.hostname === "127.0.0.1" || base.hostname === "[::1]") base.hostname = "localhost";
  return { link: new URL(path, base).href, seconds };
}
