// The form of a tool's answer: text for the model and the same as data, or what went wrong in words that it can act on.
import type { CallToolResult } from "@modelcontextprotocol/sdk/types.js";
import { asFailure } from "@svc/contract/failures.ts";

export function answer(data: Record<string, unknown>, text: string = JSON.stringify(data)): CallToolResult {
  return { content: [{ type: "text", text }], structuredContent: data };
}

/** Runs a tool; a failure is an answer, not an error of the protocol: the model can try otherwise. */
export async function answering(work: () => Promise<CallToolResult>): Promise<CallToolResult> {
  try {
    return await work();
  } catch (error) {
    const { name, message, retryAfterSeconds } = asFailure(error);
    const retry = retryAfterSeconds === undefined ? "" : ` (try again in ${retryAfterSeconds} s)`;
    return { isError: true, content: [{ type: "text", text: `${name}: ${message}${retry}` }] };
  }
}
