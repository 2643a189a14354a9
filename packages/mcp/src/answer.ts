// The form of a tool's answer: text for the model and the same content as data, or an error message that the model can act on.
import type { CallToolResult } from "@modelcontextprotocol/sdk/types.js";
import { asFailure } from "@svc/contract/failures.ts";

export function answer(data: Record<string, unknown>, text: string = JSON.stringify(data)): CallToolResult {
  return { content: [{ type: "text", text }], structuredContent: data };
}

/** Runs a tool and turns a failure into an answer, not a protocol error, so that the model can try something else. */
export async function answering(work: () => Promise<CallToolResult>): Promise<CallToolResult> {
  try {
    return await work();
  } catch (error) {
    const { name, message, retryAfterSeconds } = asFailure(error);
    const retry = retryAfterSeconds === undefined ? "" : ` (try again in ${retryAfterSeconds} s)`;
    return { isError: true, content: [{ type: "text", text: `${name}: ${message}${retry}` }] };
  }
}
