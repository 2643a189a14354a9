// Fetches what envd remembers of the processes it started; asked only when somebody reads the sandbox's log.
import { request } from "node:http";
import { z } from "zod";
import { dialUnix } from "../runtime/dial.ts";
import type { RuntimeHandle } from "../runtime/runtime.ts";

const ENVD_PORT = 49983;
/** A reader of the log waits no longer for a sandbox that does not answer. */
const BOUND_MS = 1_000;
/** A thousand entries of some six hundred bytes, and room. What is inside could send without end. */
const MAX_BYTES = 2 * 1024 * 1024;
const MAX_ENTRIES = 1_000;

/** Code inside the sandbox may have written all of this: every length is bounded here. */
const processEntry = z.object({
  seq: z.number().int().min(1),
  at: z.number().int().min(0),
  ended: z.boolean().default(false),
  pid: z.number().int().min(0),
  user: z.string().max(256),
  command: z.string().max(1024),
  cut: z.boolean().default(false),
  exitCode: z.number().int().default(0),
  status: z.string().max(256).default(""),
  millis: z.number().int().min(0).default(0),
});
export type ProcessEntry = z.output<typeof processEntry>;

const processPage = z.object({ run: z.string().regex(/^[0-9a-f]{1,64}$/), entries: z.array(processEntry).max(MAX_ENTRIES) });
export type ProcessPage = z.output<typeof processPage>;

export type Known = { readonly run: string; readonly seq: number };

/** What is behind `known`, oldest first; undefined where envd does not answer, or not in these words. */
export async function fetchProcesses(
  handle: RuntimeHandle,
  accessToken: string | undefined,
  known: Known,
  boundMs = BOUND_MS,
): Promise<ProcessPage | undefined> {
  const page = await ask(handle, accessToken, known.seq, boundMs);
  // Another run of envd counts anew.
  if (page === undefined || page.run === known.run || known.seq === 0) return page;
  return ask(handle, accessToken, 0, boundMs);
}

async function ask(handle: RuntimeHandle, accessToken: string | undefined, after: number, boundMs: number): Promise<ProcessPage | undefined> {
  try {
    const parsed = processPage.safeParse(JSON.parse(await get(handle, accessToken, `/svc/log?after=${after}`, boundMs)));
    if (!parsed.success) return undefined;
    const { run, entries } = parsed.data;
    const isRising = entries.every(({ seq }, index) => seq > (entries[index - 1]?.seq ?? after));
    return isRising ? { run, entries } : undefined;
  } catch {
    return undefined;
  }
}

function get({ endpoint }: RuntimeHandle, accessToken: string | undefined, path: string, boundMs: number): Promise<string> {
  // The socket's name lies inside the sandbox: only dialUnix may open it.
  const where =
    endpoint.kind === "tcp"
      ? { host: endpoint.host, port: ENVD_PORT, agent: false as const }
      : { host: "envd", createConnection: () => dialUnix(endpoint.path) };
  const headers = { connection: "close", ...(accessToken === undefined ? {} : { "x-access-token": accessToken }) };
  return new Promise((resolve, reject) => {
    const call = request({ ...where, path, headers }, (response) => {
      const chunks: Buffer[] = [];
      let bytes = 0;
      response.on("data", (chunk: Buffer) => {
        bytes += chunk.length;
        if (bytes > MAX_BYTES) call.destroy(new Error(`more than ${MAX_BYTES} bytes`));
        else chunks.push(chunk);
      });
      response.once("end", () => {
        clearTimeout(timer);
        if (response.statusCode === 200) resolve(Buffer.concat(chunks).toString("utf8"));
        else reject(new Error(`HTTP ${response.statusCode}`));
      });
      response.once("error", reject);
    });
    const timer = setTimeout(() => call.destroy(new Error(`no answer within ${boundMs} ms`)), boundMs);
    call.once("error", (error) => {
      clearTimeout(timer);
      reject(error);
    });
    call.end();
  });
}
