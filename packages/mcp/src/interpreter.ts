// Runs code in the Jupyter kernels of a code-interpreter-v1 sandbox through its server on port 49999. Variables keep their values between calls.
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import type { SvcClient } from "@svc/contract/client.ts";
import { fail } from "@svc/contract/failures.ts";
import type { SandboxAnswer } from "@svc/contract/fields.ts";
import { Output } from "./output.ts";
import { portAddress } from "./port-address.ts";

export const INTERPRETER_TEMPLATE = "code-interpreter-v1";
const PORT = 49_999;
/** An answer must stay small enough for a model. Further results are left out, and `leftOut` counts them. */
const MAX_RESULTS = 20;
const MAX_IMAGE_CHARS = 6 * 1024 * 1024;
const MAX_TEXT_CHARS = 32 * 1024;
/** The escape sequences with which Jupyter colours tracebacks. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they begin with the control character ESC.
const COLOURS = /\u001b\[[0-9;]*m/g;

export type CodeImage = { readonly mimeType: "image/png" | "image/jpeg"; readonly data: string };
export type CodeResult = { readonly text?: string; readonly html?: string; readonly markdown?: string; readonly svg?: string; readonly json?: unknown };
export type CodeRun = {
  readonly stdout: string;
  readonly stderr: string;
  readonly results: readonly CodeResult[];
  readonly images: readonly CodeImage[];
  readonly error: { readonly name: string; readonly value: string; readonly traceback: string } | undefined;
  readonly timedOut: boolean;
  /** The number of results and images that were left out of this answer. */
  readonly leftOut: number;
};

type Line =
  | { readonly type: "stdout" | "stderr"; readonly text: string }
  | { readonly type: "error"; readonly name: string; readonly value: string; readonly traceback: string }
  | ({ readonly type: "result"; readonly png?: string; readonly jpeg?: string } & CodeResult)
  | { readonly type: "number_of_executions" | "end_of_execution" | "unexpected_end_of_execution" };

export type CodeRequest = { readonly code: string; readonly language: string; readonly timeoutMs: number };

/** Returns undefined if no interpreter listens in the sandbox. The code is interrupted when `signal` aborts or `timeoutMs` has passed. */
export async function runInKernel(
  client: SvcClient,
  sandbox: SandboxAnswer,
  { code, language, timeoutMs }: CodeRequest,
  signal: AbortSignal,
  onOutput: (text: string) => void = () => {},
): Promise<CodeRun | undefined> {
  const { headers, viaHeadersURL } = portAddress(client.baseURL, sandbox, PORT);
  const time = AbortSignal.timeout(timeoutMs);
  const [stdout, stderr] = [new Output(), new Output()];
  const results: CodeResult[] = [];
  const images: CodeImage[] = [];
  let error: CodeRun["error"];
  let timedOut = false;
  let leftOut = 0;

  function take(line: Line): void {
    if (line.type === "stdout" || line.type === "stderr") {
      (line.type === "stdout" ? stdout : stderr).add(Buffer.from(line.text));
      onOutput(line.text);
    } else if (line.type === "error") error = { name: line.name, value: line.value, traceback: line.traceback.replace(COLOURS, "").slice(-MAX_TEXT_CHARS) };
    else if (line.type === "result") {
      if (results.length >= MAX_RESULTS) {
        leftOut++;
        return;
      }
      const { png, jpeg } = line;
      const data = png ?? jpeg;
      if (data !== undefined && data.length > MAX_IMAGE_CHARS) leftOut++;
      else if (data !== undefined) images.push({ mimeType: png === undefined ? "image/jpeg" : "image/png", data: data.replaceAll("\n", "") });
      results.push(shortened(line));
    }
  }

  try {
    const response = await fetch(`${viaHeadersURL}execute`, {
      method: "POST",
      headers: { ...headers, "content-type": "application/json" },
      body: JSON.stringify({ code, language }),
      signal: AbortSignal.any([signal, time]),
    });
    if (response.status === 502) {
      await response.body?.cancel();
      return undefined;
    }
    if (!response.ok || response.body === null) return fail("INVALID_REQUEST", messageOf(await response.text()));
    const lines = createInterface({ input: Readable.fromWeb(response.body as Parameters<typeof Readable.fromWeb>[0]) });
    for await (const line of lines) if (line !== "") take(JSON.parse(line) as Line);
  } catch (cause) {
    if (!time.aborted || signal.aborted) throw cause;
    timedOut = true;
  }
  return { stdout: stdout.text, stderr: stderr.text, results, images, error, timedOut, leftOut };
}

/** Keeps the forms of a result that a model reads, each up to a limit. `data` and `chart` are for programs; images are returned separately. */
function shortened({ text, html, markdown, svg, json }: CodeResult): CodeResult {
  const texts = { text, html, markdown, svg };
  const short = Object.entries(texts).flatMap(([form, value]) => (value === undefined || value.length > MAX_TEXT_CHARS ? [] : [[form, value]]));
  if (text !== undefined && text.length > MAX_TEXT_CHARS)
    short.push(["text", `${text.slice(0, MAX_TEXT_CHARS)}[… ${text.length - MAX_TEXT_CHARS} more characters …]`]);
  return { ...Object.fromEntries(short), ...(json === undefined || JSON.stringify(json).length > MAX_TEXT_CHARS ? {} : { json }) };
}

function messageOf(body: string): string {
  try {
    const { message } = JSON.parse(body) as { message?: unknown };
    return typeof message === "string" ? message : body;
  } catch {
    return body.slice(0, 500);
  }
}
