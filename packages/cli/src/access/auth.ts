// `svc auth`: asks for the server's URL and the API key, tries them, saves them.
import { createInterface } from "node:readline";
import { DEFAULT_BASE_URL, SvcClient } from "@svc/contract/client.ts";
import { asFailure, fail } from "@svc/contract/failures.ts";
import { sdkKeyOf } from "@svc/contract/sdk-key.ts";
import { EXIT_FAILURE, remark, UsageError } from "../output/complain.ts";
import { findAccess } from "./access.ts";
import { type Credentials, checkKey, checkURL, credentialsPath, saveCredentials } from "./credentials.ts";

type Options = { check: boolean; show?: true | string; export?: true };

export async function auth(args: readonly string[], { check, show, export: isExport }: Options): Promise<number> {
  if (args.length > 0)
    throw new UsageError(
      "auth takes no URL and no key as words, since other users of this machine see command lines: run svc auth and enter them, or pipe two lines: printf '%s\\n' URL \"$KEY\" | svc auth",
    );
  if (isExport === true) return await exportAccess();
  if (show === "e2b") return await showSdkKey();
  if (typeof show === "string") throw new UsageError(`--show: expected e2b or nothing, got "${show}"`);
  if (show === true) return await showAccess();
  const entered = process.stdin.isTTY ? await ask() : await readTwoLines();
  if (entered === undefined) {
    remark("nothing saved");
    return EXIT_FAILURE;
  }
  if (check) await tryCredentials(entered);
  const path = credentialsPath();
  await saveCredentials(entered, path);
  remark(check ? `${entered.url} takes the key. Saved in ${path}` : `Saved in ${path}, unchecked`);
  return 0;
}

/** Returns undefined when the user cancelled. The specification: Enter accepts the local URL; the key's input is hidden. */
async function ask(): Promise<Credentials | undefined> {
  const { isCancel, password, text } = await import("@clack/prompts");
  const url = await text({
    message: "Server URL",
    placeholder: DEFAULT_BASE_URL,
    defaultValue: DEFAULT_BASE_URL,
    output: process.stderr,
    validate: (value) => (value === undefined || value === "" ? undefined : wrongURL(value)),
  });
  if (isCancel(url)) return undefined;
  const apiKey = await password({ message: "API key", output: process.stderr, validate: (value) => checkKey((value ?? "").trim()) });
  return isCancel(apiKey) ? undefined : credentialsOf(url, apiKey);
}

async function readTwoLines(): Promise<Credentials> {
  const lines: string[] = [];
  for await (const line of createInterface({ input: process.stdin })) {
    lines.push(line);
    if (lines.length === 2) break;
  }
  process.stdin.destroy();
  const [url, apiKey] = lines;
  if (url === undefined || apiKey === undefined)
    throw new UsageError(`auth without a terminal reads two lines from stdin, the URL (may be empty) and the API key; got ${lines.length}`);
  return credentialsOf(url, apiKey);
}

function credentialsOf(urlText: string, keyText: string): Credentials {
  const checked = checkURL(urlText.trim() === "" ? DEFAULT_BASE_URL : urlText.trim());
  if ("wrong" in checked) throw new UsageError(checked.wrong);
  const apiKey = keyText.trim();
  const wrong = checkKey(apiKey);
  if (wrong !== undefined) throw new UsageError(wrong);
  return { url: checked.url, apiKey };
}

function wrongURL(text: string): string | undefined {
  const checked = checkURL(text);
  return "wrong" in checked ? checked.wrong : undefined;
}

async function tryCredentials({ url, apiKey }: Credentials): Promise<void> {
  const advice = "nothing saved; --no-check saves all the same";
  try {
    await new SvcClient({ baseURL: url, apiKey }).list({ limit: 1 }).next();
  } catch (error) {
    const failure = asFailure(error);
    if (failure.name === "UNAUTHENTICATED") fail("UNAUTHENTICATED", `${url} refuses this key: ${advice}`);
    if (failure.name === "SERVER_UNREACHABLE") fail("SERVER_UNREACHABLE", `no server answers at ${url}, so the key cannot be checked: ${advice}`);
    fail(failure.name, `${url} does not answer as a server of this platform (${failure.message.slice(0, 200)}): ${advice}`);
  }
}

/** Prints variables for `eval` in a shell, with which the E2B SDKs and curl find the server. */
async function exportAccess(): Promise<number> {
  const { url, apiKey, withheld } = await findAccess({});
  if (apiKey === undefined) fail("UNAUTHENTICATED", `no API key for ${url}: ${withheld ?? "run svc auth, or set SDK_API_KEY"}`);
  const lines = { E2B_API_URL: url, E2B_SANDBOX_URL: url, E2B_VOLUME_API_URL: url, E2B_API_KEY: apiKey };
  process.stdout.write(
    Object.entries(lines)
      .map(([name, value]) => `export ${name}='${value.replaceAll("'", "'\\''")}'\n`)
      .join(""),
  );
  return 0;
}

/** Prints the spelling of the key that every release of the E2B SDKs accepts. */
async function showSdkKey(): Promise<number> {
  const { url, apiKey, withheld } = await findAccess({});
  if (apiKey === undefined) fail("UNAUTHENTICATED", `no API key for ${url}: ${withheld ?? "run svc auth, or set SDK_API_KEY"}`);
  process.stdout.write(`${sdkKeyOf(apiKey)}\n`);
  return 0;
}

async function showAccess(): Promise<number> {
  const { url, apiKey, keyFrom, withheld } = await findAccess({});
  process.stdout.write(
    `url  ${url}\nkey  ${apiKey === undefined ? `none: ${withheld ?? "run svc auth, or set SDK_API_KEY"}` : `${apiKey.slice(0, 8)}…, from ${keyFrom}`}\n`,
  );
  return apiKey === undefined ? EXIT_FAILURE : 0;
}
