// The saved credentials: ~/.config/svc/credentials, TOML with url and api_key, readable by its owner alone.
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { fail } from "@svc/contract/failures.ts";

export type Credentials = { readonly url: string; readonly apiKey: string };

const KEY = /^[A-Za-z0-9._~-]{32,256}$/;

export function credentialsPath(env: NodeJS.ProcessEnv = process.env): string {
  const base = env["XDG_CONFIG_HOME"];
  return join(base?.startsWith("/") ? base : join(homedir(), ".config"), "svc", "credentials");
}

/** Returns undefined if no credentials are saved. */
export async function readCredentials(path = credentialsPath()): Promise<Credentials | undefined> {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    return fail("SETTING_INVALID", `the saved credentials ${path} cannot be read: ${(error as Error).message}`, { cause: error });
  }
  const { parse } = await import("smol-toml");
  let table: Record<string, unknown>;
  try {
    table = parse(text);
  } catch (error) {
    return fail("SETTING_INVALID", `${path} is not valid TOML (${(error as Error).message.split("\n")[0]}); \`svc auth\` writes it again`, { cause: error });
  }
  const { url, api_key } = table;
  if (typeof url !== "string" || typeof api_key !== "string") fail("SETTING_INVALID", `${path} lacks url or api_key; \`svc auth\` writes it again`);
  return { url, apiKey: api_key };
}

/** Saves atomically: a reader, or a crash, sees the old file or the new one. */
export async function saveCredentials(credentials: Credentials, path = credentialsPath()): Promise<void> {
  const { stringify } = await import("smol-toml");
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const temporary = `${path}.${process.pid}`;
  try {
    writeFileSync(temporary, `${stringify({ url: credentials.url, api_key: credentials.apiKey })}\n`, { mode: 0o600, flag: "wx" });
    renameSync(temporary, path);
  } finally {
    rmSync(temporary, { force: true });
  }
}

/** Returns the URL without trailing slashes, or the reason why it is not valid. */
export function checkURL(text: string): { url: string } | { wrong: string } {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    return { wrong: `${JSON.stringify(text)} is not a URL; for example http://localhost:8000` };
  }
  if (url.protocol !== "http:" && url.protocol !== "https:")
    return { wrong: `expected a URL that begins with http:// or https://, got ${JSON.stringify(text)}` };
  if (url.username !== "" || url.search !== "" || url.hash !== "") return { wrong: "a URL holds no user, query or fragment here" };
  return { url: (url.origin + url.pathname).replace(/\/+$/, "") };
}

/** Specification: a key is 32 to 256 URL-safe characters. */
export function checkKey(text: string): string | undefined {
  return KEY.test(text) ? undefined : `expected an API key of 32 to 256 characters of A-Z a-z 0-9 . _ ~ -; got ${text.length} characters`;
}
