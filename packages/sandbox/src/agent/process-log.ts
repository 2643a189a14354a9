// Fetches envd's log of the processes it started, only when a client reads the sandbox's log.
import { z } from "zod";
import type { RuntimeHandle } from "../runtime/runtime.ts";
import { requestAgent } from "./request.ts";

/** A reader of the log waits at most this long for a sandbox that does not answer. */
const BOUND_MS = 1_000;
/** Enough for a thousand entries of about six hundred bytes, and small enough for one JSON.parse. */
const MAX_BYTES = 2 * 1024 * 1024;
const MAX_ENTRIES = 1_000;
/** The maximum number of brackets, commas and colons in a page: an entry has eleven members. */
const MAX_MARKS = 32 * MAX_ENTRIES;

/** Code in the sandbox may have written all of this, so every length is bounded. */
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

/** Returns the entries after `known`, oldest first; undefined if envd does not answer, or not in this format. */
export async function fetchProcesses(
  handle: RuntimeHandle,
  accessToken: string | undefined,
  known: Known,
  boundMs = BOUND_MS,
): Promise<ProcessPage | undefined> {
  const page = await ask(handle, accessToken, known.seq, boundMs);
  // Another run of envd counts from the start.
  if (page === undefined || page.run === known.run || known.seq === 0) return page;
  return ask(handle, accessToken, 0, boundMs);
}

async function ask(handle: RuntimeHandle, accessToken: string | undefined, after: number, boundMs: number): Promise<ProcessPage | undefined> {
  try {
    const headers = accessToken === undefined ? {} : { "x-access-token": accessToken };
    const { code, body } = await requestAgent(handle, { method: "GET", path: `/svc/log?after=${after}`, headers, boundMs, maxBytes: MAX_BYTES });
    if (code !== 200 || !isSimple(body)) return undefined;
    const parsed = processPage.safeParse(JSON.parse(body.toString("utf8")));
    if (!parsed.success) return undefined;
    const { run, entries } = parsed.data;
    const isRising = entries.every(({ seq }, index) => seq > (entries[index - 1]?.seq ?? after));
    return isRising ? { run, entries } : undefined;
  } catch {
    return undefined;
  }
}

/** True if the text has few enough parts for one JSON.parse: two megabytes of brackets alone take it half a second. */
function isSimple(text: Buffer): boolean {
  let marks = 0;
  let inString = false;
  for (let at = 0; at < text.length; at++) {
    const byte = text[at];
    if (byte === 0x22) inString = !inString;
    else if (inString) at += byte === 0x5c ? 1 : 0;
    else if (byte === 0x5b || byte === 0x7b || byte === 0x2c || byte === 0x3a) marks++;
  }
  return marks <= MAX_MARKS;
}
