// The form of a tool's answer: text for the model and the same content as data, or an error message that the model can act on.
import type { CallToolResult, ServerContext } from "@modelcontextprotocol/server";
import { asFailure } from "@svc/contract/failures.ts";

/** Clients that extend their time-out at each notification wait up to a minute for the next one. */
const PROGRESS_EVERY_MS = 5_000;
const MAX_MESSAGE_CHARS = 200;

export function answer(data: Record<string, unknown>, text: string = JSON.stringify(data)): CallToolResult {
  return { content: [{ type: "text", text }], structuredContent: data };
}

/** The progress of a call. The next notification to the client includes the last line of the text that was passed to `say` most recently. */
export type Progress = { say(text: string): void };

/**
 * Runs a tool, and reports progress while it runs, if the client sent a token for it. Turns a failure into an answer, not a protocol error, so that
 * the model can try something else.
 */
export async function answering(
  { mcpReq }: ServerContext,
  work: (progress: Progress) => Promise<CallToolResult>,
  everyMs = PROGRESS_EVERY_MS,
): Promise<CallToolResult> {
  const progressToken = mcpReq._meta?.progressToken;
  const sinceMs = performance.now();
  let said: string | undefined;
  const timer =
    progressToken === undefined
      ? undefined
      : setInterval(() => {
          const progress = (performance.now() - sinceMs) / 1000;
          const message = said === undefined ? `${progress.toFixed(0)} s` : `${progress.toFixed(0)} s: ${said}`;
          mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress, message } }).catch(() => undefined);
        }, everyMs);
  try {
    return await work({
      say(text) {
        const line = text.trimEnd().split("\n").at(-1) ?? "";
        if (line !== "") said = line.slice(-MAX_MESSAGE_CHARS);
      },
    });
  } catch (error) {
    const { name, message, retryAfterSeconds } = asFailure(error);
    const retry = retryAfterSeconds === undefined ? "" : ` (try again in ${retryAfterSeconds} s)`;
    return { isError: true, content: [{ type: "text", text: `${name}: ${message}${retry}` }] };
  } finally {
    clearInterval(timer);
  }
}
