// `svc mcp`: gives an agent sandboxes by the Model Context Protocol, on stdin and stdout or over HTTP.
import { readFileSync } from "node:fs";
import { isIP } from "node:net";
import { findAccess } from "@svc/cli/access/access.ts";
import { complain, EXIT_USAGE, UsageError } from "@svc/cli/output/complain.ts";
import { seconds, Verb } from "@svc/cli/verbs/verb.ts";
import { SvcClient } from "@svc/contract/client.ts";
import { fail } from "@svc/contract/failures.ts";
import { listenHttp } from "./http.ts";
import { SessionSandboxes } from "./sandboxes.ts";
import { serveStdio } from "./stdio.ts";

type Options = { url?: string; listen?: string; tokenFile?: string; template?: string; timeout: number; keep?: boolean };

const help = `
Without --listen the protocol is spoken on stdin and stdout, as most agents want it:

  { "mcpServers": { "svc": { "command": "/path/to/svc", "args": ["mcp"] } } }

With --listen it is spoken over HTTP, at /mcp, to any number of sessions. A session has a sandbox of its own, started when it is first needed, and may start others; all end with the session.
Beyond loopback a token is demanded (Authorization: Bearer …): any client that reaches the port can run code in your sandboxes.

Examples:
  svc mcp --listen 127.0.0.1:8765
  svc mcp --listen 0.0.0.0:8765 --token-file /run/secrets/mcp-token`;

export async function main(argv: readonly string[]): Promise<number> {
  const verb = new Verb("svc mcp")
    .description("give an agent sandboxes by the Model Context Protocol")
    .option("--listen <host:port>", "speak HTTP there (default: stdin and stdout)")
    .option("--token-file <file>", "its first line is the token that HTTP clients must send (default: SVC_MCP_TOKEN, if set)")
    .option("--template <name>", "what sandboxes start from (default: code-interpreter-v1 if it is built, else base)")
    .option("--timeout <seconds>", "how long a sandbox lives after the last call for it", seconds, 1800)
    .option("--keep", "leave the sandboxes running when a session ends")
    .option("--url <url>", "the server (default: that of svc auth, else SVC_URL, else this machine's own)")
    .addHelpText("after", help)
    .run(async (options: never) => serve(options)) as Verb;
  try {
    await verb.parseAsync([...argv], { from: "user" });
  } catch (error) {
    const { code, exitCode } = error as { code?: string; exitCode?: number };
    // Commander has already printed the message.
    const isSaid = code?.startsWith("commander.") === true;
    if (isSaid && exitCode === 0) return 0;
    if (!isSaid && !(error instanceof UsageError)) throw error;
    if (!isSaid) complain(error);
    process.stderr.write(verb.usageLines());
    return EXIT_USAGE;
  }
  return verb.exitCode;
}

async function serve({ url, listen, tokenFile, template, timeout: timeoutSeconds, keep = false }: Options): Promise<number> {
  const address = listen === undefined ? undefined : parseListen(listen);
  const token = address === undefined ? undefined : readToken(tokenFile, address.host);
  const access = await findAccess(url === undefined ? {} : { url });
  if (access.apiKey === undefined) fail("UNAUTHENTICATED", `no API key for ${access.url}: run svc auth, or set SDK_API_KEY`);
  const client = new SvcClient({ baseURL: access.url, apiKey: access.apiKey });
  const openSandboxes = (kind: { stateless: boolean }) => new SessionSandboxes(client, { template, timeoutSeconds, keep, ...kind });
  const stop = Promise.withResolvers<void>();
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => stop.resolve());

  if (address === undefined) return serveStdio(openSandboxes({ stateless: false }), stop.promise);
  const server = await listenHttp({ ...address, token, idleMs: timeoutSeconds * 1000, openSandboxes }).catch((error: NodeJS.ErrnoException) => {
    const why = error.code === "EADDRINUSE" ? "another process listens there; choose another port" : error.message;
    throw new UsageError(`--listen ${listen}: cannot listen: ${why}`);
  });
  process.stderr.write(`svc mcp: listening on ${server.url}\n`);
  await stop.promise;
  await server.close();
  return 0;
}

function parseListen(text: string): { host: string; port: number } {
  const [, host = "", digits = ""] = /^(?:\[?(.*?)\]?:)?(\d{1,5})$/.exec(text) ?? [];
  const port = Number(digits);
  if (digits === "" || port > 65_535) throw new UsageError(`--listen: expected HOST:PORT, got "${text}"`);
  return { host: host === "" ? "127.0.0.1" : host, port };
}

function readToken(file: string | undefined, host: string): string | undefined {
  const token = file === undefined ? process.env["SVC_MCP_TOKEN"] : readFileSync(file, "utf8").split("\n", 1)[0]?.trim();
  if (token) return token;
  if (file !== undefined) throw new UsageError(`--token-file: ${file} has no token in its first line`);
  const isLoopback = host === "localhost" || (isIP(host) !== 0 && /^(127\.|::1$)/.test(host));
  if (!isLoopback) throw new UsageError(`--listen ${host}: to listen beyond loopback a token is needed; give it with --token-file`);
  return undefined;
}
