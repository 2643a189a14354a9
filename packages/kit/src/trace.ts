// The W3C trace context of the current request: taken from the client, added to every log line, and passed on.
import { AsyncLocalStorage } from "node:async_hooks";

/** traceparent and tracestate as the client sent them; empty if it sent none. */
export type Trace = Readonly<Record<string, string>>;

const MAX_TRACESTATE = 512;
const form = /^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.{0,64})?$/;
const current = new AsyncLocalStorage<Trace>();

export function traceOf(headers: Readonly<Record<string, unknown>>): Trace {
  const { traceparent, tracestate } = headers;
  if (typeof traceparent !== "string" || !form.test(traceparent)) return {};
  return { traceparent, ...(typeof tracestate === "string" && tracestate.length <= MAX_TRACESTATE ? { tracestate } : {}) };
}

/** Runs `work` as part of a trace; without a traceparent it just runs it. */
export function traced<T>(trace: Trace, work: () => T): T {
  return trace["traceparent"] === undefined ? work() : current.run(trace, work);
}

/** The headers for calls to others on behalf of the current request. */
export const traceHeaders = (): Trace => current.getStore() ?? {};

/** The members that the trace adds to a log line. */
export function traceMembers(): { traceID?: string } {
  const traceID = form.exec(current.getStore()?.["traceparent"] ?? "")?.[1];
  return traceID === undefined ? {} : { traceID };
}
